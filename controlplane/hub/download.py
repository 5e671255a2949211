"""Fetching a model's weights into the cache."""

from __future__ import annotations

import fcntl
import shutil
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from glob import escape
from pathlib import Path
from threading import Event

from huggingface_hub import constants, snapshot_download

from controlplane.hub import large_file
from controlplane.hub.cache import Snapshot, checked, find_snapshot, remember, repo_folder
from controlplane.hub.failures import BadWeights, DiskFull, HubFailure
from controlplane.hub.files import HubFile, wanted_files
from controlplane.hub.lookup import resolve
from controlplane.hub.progress import Report, watch
from controlplane.hub.translation import translate

AT_ONCE = 4  # large files; more share the line without being faster
LARGE = 8 * 1024 * 1024  # bytes; below, a file is fetched again as quickly as it is resumed
HEADROOM = 256 * 1024 * 1024  # bytes that stay free: a full disk harms more than this download


@dataclass(frozen=True, slots=True)
class Hub:
    """Which hub, and as whom. `token` is in the environment of the downloader only."""

    endpoint: str
    token: str | None = None


def free_bytes(path: Path) -> int:
    return shutil.disk_usage(path).free


def download(
    hub: Hub,
    cache: Path,
    model: str,
    revision: str | None,
    *,
    report: Report,
    free: Callable[[Path], int] = free_bytes,
) -> Snapshot:
    """Bring the files that an engine needs of `model` at `revision` into `cache`, going on
    where an earlier attempt ended, and return the complete snapshot.

    One at a time per model and cache; a second caller waits. Raises HubFailure, in one of
    its kinds, and leaves what was fetched so far.
    """
    model, wanted = checked(model, revision)
    try:
        with repo_lock(cache, model):
            return _download(hub, cache, model, wanted, report, free)
    except HubFailure:
        raise
    except Exception as e:
        now = datetime.now(UTC)
        raise translate(
            e, model=model, revision=wanted, with_token=hub.token is not None, now=now
        ) from e


@contextmanager
def repo_lock(cache: Path, model: str, *, wait: bool = True) -> Iterator[None]:
    """Held by whoever changes a model's folder in `cache`. Without `wait`, BlockingIOError
    when somebody else does."""
    locks = cache / ".locks"
    locks.mkdir(parents=True, exist_ok=True)
    with (locks / f"{repo_folder(cache, model).name}.slipstream").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        yield


def _download(
    hub: Hub,
    cache: Path,
    model: str,
    revision: str,
    report: Report,
    free: Callable[[Path], int],
) -> Snapshot:
    found = resolve(hub.endpoint, hub.token, model, revision)
    files = wanted_files(found.files)
    blobs = repo_folder(cache, model) / "blobs"
    blobs.mkdir(parents=True, exist_ok=True)
    for stale in blobs.glob("*.incomplete"):
        stale.unlink(missing_ok=True)  # the hub client never goes on with one
    with watch(files, blobs, report) as seen:
        _check_room(seen.missing(), free(cache), model)
        source = large_file.Source(hub.endpoint, hub.token, model, found.commit)
        _fetch_large(source, files, blobs)
        snapshot_download(
            model,
            revision=found.commit,
            cache_dir=cache,
            endpoint=hub.endpoint,
            token=hub.token or False,
            allow_patterns=[escape(f.path) for f in files],
            max_workers=AT_ONCE,
        )
    snapshot = find_snapshot(cache, model, found.commit)
    if snapshot is None:
        raise BadWeights(f"What the hub sent of {model} is not what it lists.")
    remember(cache, model, revision, found.commit)
    return snapshot


def _check_room(missing: int, free: int, model: str) -> None:
    if missing + HEADROOM > free:
        raise DiskFull(
            f"{model} needs {_size(missing)} more on disk, and {_size(free)} are free"
            f" ({_size(HEADROOM)} of them stay so)."
        )


def _size(count: int) -> str:
    return f"{count / 1e9:.1f} GB" if count >= 1e9 else f"{count / 1e6:.1f} MB"


def _fetch_large(source: large_file.Source, files: Sequence[HubFile], blobs: Path) -> None:
    """Those that are worth resuming. The hub sends none beyond 50 GB over plain HTTP: such
    files are left to the hub client, which has another way for them."""
    todo = {
        f.sha256: f
        for f in files
        if f.sha256 is not None
        and LARGE <= f.size <= constants.MAX_HTTP_DOWNLOAD_SIZE
        and not (blobs / f.sha256).exists()
    }
    if not todo:
        return
    stop = Event()
    with ThreadPoolExecutor(AT_ONCE) as pool:
        running = [
            pool.submit(large_file.fetch, source, f.path, f.size, sha, blobs, stop)
            for sha, f in todo.items()
        ]
        done, _ = wait(running, return_when=FIRST_EXCEPTION)
        failed = [f for f in done if f.exception() is not None]
        if failed:
            stop.set()
            pool.shutdown(wait=True, cancel_futures=True)
            failed[0].result()
