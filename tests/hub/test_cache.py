"""Finding weights that are here, without a hub, and writing nothing."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from huggingface_hub import close_session

from controlplane.hub.cache import checked, find_snapshot, remember, repo_folder
from controlplane.hub.download import Hub, download
from controlplane.hub.failures import ModelNotFound
from controlplane.hub.progress import Progress
from tests.hub_server.machine import fingerprint
from tests.hub_server.repos import tiny_model
from tests.hub_server.server import hub_server

MODEL = "acme/tiny"
HOSTILE = [
    "",
    ".",
    "..",
    "../../etc",
    "main/../../../x",
    "/etc/passwd",
    "a\nb",
    "main\n",
    "a\x00b",
    "$(touch x)",
    "a b",
    "-rf",
    "a//b",
    "a/",
    "ä",
    "x" * 10_000,
]


def ignore(_: Progress) -> None:
    """Nobody looks."""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A cache with one model of three shards, made by the real client; its commit."""
    folder = tmp_path_factory.mktemp("made") / "cache"
    with hub_server() as hub:
        hub.add(MODEL, tiny_model(3_000, shards=3))
        found = download(Hub(hub.url), folder, MODEL, None, report=ignore)
    close_session()
    return folder, found.commit


@pytest.fixture
def cache(made: tuple[Path, str], tmp_path: Path) -> Path:
    """A copy of it."""
    return Path(shutil.copytree(made[0], tmp_path / "cache", symlinks=True))


@pytest.fixture
def commit(made: tuple[Path, str]) -> str:
    return made[1]


def as_an_older_client_left_it(cache: Path) -> None:
    shutil.rmtree(repo_folder(cache, MODEL) / "trees")


def test_a_complete_snapshot_is_found_by_branch_and_by_commit(cache: Path, commit: str) -> None:
    found = find_snapshot(cache, MODEL, None)
    assert found is not None
    assert found.commit == commit
    assert (found.path / "config.json").is_file()
    assert find_snapshot(cache, MODEL, commit) == found
    assert find_snapshot(cache, MODEL, "main") == found


def test_looking_changes_nothing(cache: Path) -> None:
    before = fingerprint(cache)
    assert find_snapshot(cache, MODEL, None)
    assert find_snapshot(cache, "acme/other", None) is None
    assert find_snapshot(cache, MODEL, "other") is None
    assert fingerprint(cache) == before


@pytest.mark.parametrize("older", [False, True])
@pytest.mark.parametrize(
    "missing", ["model-00002-of-00003.safetensors", "config.json", "tokenizer*"]
)
def test_a_snapshot_that_lacks_a_part_is_none(cache: Path, older: bool, missing: str) -> None:
    if older:
        as_an_older_client_left_it(cache)
    found = find_snapshot(cache, MODEL, None)
    assert found is not None
    for part in found.path.glob(missing):
        part.unlink()
    assert find_snapshot(cache, MODEL, None) is None


def test_a_snapshot_with_a_file_cut_short_is_none(cache: Path) -> None:
    found = find_snapshot(cache, MODEL, None)
    assert found is not None
    shard = (found.path / "model-00001-of-00003.safetensors").resolve()
    shard.write_bytes(shard.read_bytes()[:-1])
    assert find_snapshot(cache, MODEL, None) is None


def test_a_link_into_nothing_is_no_file(cache: Path) -> None:
    as_an_older_client_left_it(cache)
    found = find_snapshot(cache, MODEL, None)
    assert found is not None
    (found.path / "model-00001-of-00003.safetensors").resolve().unlink()
    assert find_snapshot(cache, MODEL, None) is None


@pytest.mark.parametrize("content", [b"", b"[]", b"{", b"\xff", b"[" * 100_000, b'{"files": 1}'])
def test_a_listing_that_is_garbage_is_as_none(cache: Path, content: bytes) -> None:
    (tree,) = (repo_folder(cache, MODEL) / "trees").iterdir()
    tree.write_bytes(content)
    assert find_snapshot(cache, MODEL, None) is not None


@pytest.mark.parametrize("content", [b"", b"../../x", b"\xff\xfe", b"main", b"a" * 39])
def test_a_ref_that_names_no_commit_finds_nothing(cache: Path, content: bytes) -> None:
    (repo_folder(cache, MODEL) / "refs" / "main").write_bytes(content)
    assert find_snapshot(cache, MODEL, None) is None


@pytest.mark.parametrize("revision", HOSTILE)
def test_a_revision_outside_the_grammar_is_refused_before_it_is_a_path(
    tmp_path: Path, revision: str
) -> None:
    with pytest.raises(ModelNotFound) as e:
        find_snapshot(tmp_path, MODEL, revision)
    assert len(e.value.message) < 200
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("model", [*HOSTILE, "a/../b", "a/b/c", "https://evil.example/a/b"])
def test_a_model_outside_the_grammar_is_refused_before_it_is_a_path(model: str) -> None:
    with pytest.raises(ModelNotFound):
        checked(model, None)


@pytest.mark.parametrize("revision", ["main", "v1.0", "refs/pr/4", "feature_x", "a" * 40])
def test_branches_tags_and_commits_are_revisions(revision: str) -> None:
    assert checked(MODEL, revision) == (MODEL, revision)


def test_a_branch_with_a_slash_is_remembered(cache: Path, commit: str) -> None:
    remember(cache, MODEL, "refs/pr/4", commit)
    found = find_snapshot(cache, MODEL, "refs/pr/4")
    assert found is not None
    assert found.commit == commit
