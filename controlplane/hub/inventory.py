"""What lies in our own hub cache, and taking it away."""

from __future__ import annotations

import shutil
from collections.abc import Collection
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from huggingface_hub import scan_cache_dir
from huggingface_hub.errors import CacheNotFound

from controlplane.errors import Conflict, NotFound
from controlplane.hub.cache import find_snapshot, repo_folder
from controlplane.hub.download import repo_lock

_PREFIX = "models--"


@dataclass(frozen=True, slots=True)
class CachedModel:
    """One revision of a model in the cache. `revision` is its commit, None for a download
    that has finished no revision yet; `names` are the branches and tags that it was fetched
    as; `size` counts what only this and revisions with the same files have on disk."""

    model: str
    revision: str | None
    names: tuple[str, ...]
    size: int
    last_used: datetime | None
    complete: bool


def inventory(cache: Path) -> list[CachedModel]:
    """Every model in `cache`, by name, those that are incomplete too."""
    try:
        repos = [r for r in scan_cache_dir(cache).repos if r.repo_type == "model"]
    except CacheNotFound:
        return []
    found = [
        CachedModel(
            repo.repo_id,
            revision.commit_hash,
            tuple(sorted(revision.refs)),
            revision.size_on_disk,
            _time(max((f.blob_last_accessed for f in revision.files), default=0.0)),
            find_snapshot(cache, repo.repo_id, revision.commit_hash) is not None,
        )
        for repo in repos
        for revision in repo.revisions
    ]
    whole = {m.model for m in found}
    parts = [m for m in _begun(cache) if m.model not in whole]
    return sorted(found + parts, key=lambda m: (m.model, m.revision or ""))


def remove(cache: Path, model: str, revision: str | None = None) -> int:
    """Take a model out of `cache`, or one revision of it by commit, branch or tag. The bytes
    that are free then.

    Raises NotFound when there is no such thing, Conflict while it is being downloaded.
    """
    here = [m for m in inventory(cache) if m.model == model]
    chosen = [m for m in here if revision is None or revision in (m.revision, *m.names)]
    if not chosen:
        what = model if revision is None else f"{model} at {revision}"
        raise NotFound(
            "not_cached", f"{what} is not in the cache.", hint="See what is: slipstream cache ls."
        )
    try:
        with repo_lock(cache, model, wait=False):
            return _remove(cache, model, chosen, everything=len(chosen) == len(here))
    except BlockingIOError as e:
        raise Conflict(
            "download_running",
            f"{model} is being downloaded at the moment.",
            hint="Wait for its end, or delete the deployment that wants it.",
        ) from e


def _remove(cache: Path, model: str, chosen: Collection[CachedModel], *, everything: bool) -> int:
    commits = [m.revision for m in chosen if m.revision is not None]
    plan = scan_cache_dir(cache).delete_revisions(*commits)
    freed = plan.expected_freed_size
    plan.execute()
    repo = repo_folder(cache, model)
    if everything and repo.is_dir():
        freed += _size(repo)
        shutil.rmtree(repo)
    for commit in commits:
        (repo / "trees" / f"{commit}.json").unlink(missing_ok=True)
    return freed


def _begun(cache: Path) -> list[CachedModel]:
    """Downloads that have finished no revision yet."""
    return [
        CachedModel(
            folder.name.removeprefix(_PREFIX).replace("--", "/"),
            None,
            (),
            _size(folder),
            _time(folder.stat().st_mtime),
            False,
        )
        for folder in cache.glob(f"{_PREFIX}*")
        if folder.is_dir()
    ]


def _size(folder: Path) -> int:
    return sum(p.lstat().st_size for p in folder.rglob("*") if p.is_file() and not p.is_symlink())


def _time(seconds: float) -> datetime | None:
    return datetime.fromtimestamp(seconds, UTC) if seconds else None
