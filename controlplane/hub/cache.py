"""Looking into a hub cache: the hub client's own layout, read without a hub.

models--ORG--NAME/refs/REVISION         the commit that a branch or tag stood for
models--ORG--NAME/snapshots/COMMIT/     the files, as links
models--ORG--NAME/blobs/HASH            their content
models--ORG--NAME/trees/COMMIT.json     what the commit holds, written by newer clients
"""

from __future__ import annotations

import os
import re
import tempfile
from dataclasses import dataclass
from pathlib import Path

from controlplane.domain.model_refs import is_revision, parse_model_ref
from controlplane.hub import folder
from controlplane.hub.failures import BadWeights, ModelNotFound
from controlplane.hub.files import wanted_paths

DEFAULT_REVISION = "main"
_COMMIT = re.compile(r"[0-9a-f]{40}")
_TOKENIZERS = (
    "tokenizer.json",
    "tokenizer.model",
    "tokenizer_config.json",
    "vocab.json",
    "vocab.txt",
    "tekken.json",
)
LARGEST_TREE = 20_000_000  # bytes


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One revision's files, complete."""

    path: Path
    commit: str


def checked(model: str, revision: str | None) -> tuple[str, str]:
    """A model and a revision that may become paths.

    Raises ModelNotFound for anything outside the grammar; its text is not repeated.
    """
    try:
        name = str(parse_model_ref(model))
    except ValueError as e:
        raise ModelNotFound(str(e)) from e
    if revision is not None and not is_revision(revision):
        raise ModelNotFound("A revision is a branch, a tag or a commit.")
    return name, revision or DEFAULT_REVISION


def repo_folder(cache: Path, model: str) -> Path:
    return cache / f"models--{model.replace('/', '--')}"


def find_snapshot(cache: Path, model: str, revision: str | None) -> Snapshot | None:
    """The complete snapshot of a model at a revision in `cache`; None when there is none, or
    when parts of it are missing. No network; nothing is written.

    Raises ModelNotFound for names outside the grammar.
    """
    model, wanted = checked(model, revision)
    repo = repo_folder(cache, model)
    commit = wanted if _COMMIT.fullmatch(wanted) else _commit_of(repo, wanted)
    if commit is None:
        return None
    path = repo / "snapshots" / commit
    try:
        complete = path.is_dir() and _is_complete(repo, path, commit)
    except OSError:  # somebody else's cache, perhaps, that we may not read
        return None
    return Snapshot(path, commit) if complete else None


def remember(cache: Path, model: str, revision: str, commit: str) -> None:
    """Note which commit a branch or tag stands for here, once its snapshot is complete: from
    then on no hub is needed to find it."""
    if _COMMIT.fullmatch(revision):
        return
    ref = repo_folder(cache, model) / "refs" / revision
    ref.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=ref.parent)
    with os.fdopen(handle, "w", encoding="ascii") as file:
        file.write(commit)
    os.replace(name, ref)


def is_commit(text: str) -> bool:
    return _COMMIT.fullmatch(text) is not None


def _commit_of(repo: Path, revision: str) -> str | None:
    try:
        commit = (repo / "refs" / revision).read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        return None
    return commit if _COMMIT.fullmatch(commit) else None


def _is_complete(repo: Path, path: Path, commit: str) -> bool:
    expected = _expected(repo / "trees" / f"{commit}.json")
    if expected is None:
        # An older client's cache: no list of what belongs here, so we go by what an engine
        # can't do without.
        return folder.fault_of(path) is None and any((path / t).is_file() for t in _TOKENIZERS)
    return all(_has(path / name, size) for name, size in expected.items())


def _expected(tree: Path) -> dict[str, int] | None:
    """Path and size of each file that an engine needs, as the hub listed them."""
    try:
        if tree.stat().st_size > LARGEST_TREE:
            return None
        found = folder.parse_object(tree.read_bytes())
    except OSError:
        return None
    files = found.get("files") if found else None
    if not isinstance(files, dict):
        return None
    sizes: dict[str, int] = {}
    for name, facts in files.items():
        size = facts.get("lfs_size", facts.get("size")) if isinstance(facts, dict) else None
        if not isinstance(size, int):
            return None
        sizes[str(name)] = size
    try:
        return {name: sizes[name] for name in wanted_paths(sizes)}
    except BadWeights:
        return None


def _has(path: Path, size: int) -> bool:
    try:
        return path.stat().st_size == size
    except OSError:
        return False
