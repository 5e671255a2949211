"""What lies in the cache, and taking it away."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from huggingface_hub import close_session

from controlplane.errors import Conflict, NotFound
from controlplane.hub.cache import find_snapshot, repo_folder
from controlplane.hub.download import Hub, download, repo_lock
from controlplane.hub.inventory import inventory, remove
from tests.hub_server.fixtures import hub
from tests.hub_server.machine import fingerprint
from tests.hub_server.repos import noise, tiny_model
from tests.hub_server.server import HubServer

__all__ = ["hub"]

MODEL = "acme/tiny"


@pytest.fixture(autouse=True)
def _sessions_end() -> Iterator[None]:
    yield
    close_session()


def bring(hub: HubServer, cache: Path, model: str, revision: str | None = None) -> str:
    hub_, see = Hub(hub.url), lambda _: None
    return download(hub_, cache, model, revision, report=see).commit


@pytest.fixture
def cache(tmp_path: Path, hub: HubServer) -> Path:
    """Two revisions of one model, and another model."""
    cache = tmp_path / "cache"
    old = hub.add(MODEL, tiny_model(50_000, seed=1))
    hub.add(MODEL, tiny_model(50_000, seed=2))
    hub.add("acme/other", tiny_model(70_000, seed=3))
    bring(hub, cache, MODEL, old)
    bring(hub, cache, MODEL)
    bring(hub, cache, "acme/other")
    return cache


def test_a_cache_that_does_not_exist_holds_nothing(tmp_path: Path) -> None:
    assert inventory(tmp_path / "none") == []
    with pytest.raises(NotFound):
        remove(tmp_path / "none", MODEL)


def test_each_revision_is_listed_with_its_names_and_size(cache: Path, hub: HubServer) -> None:
    before = fingerprint(cache)
    found = inventory(cache)
    assert [m.model for m in found] == ["acme/other", MODEL, MODEL]
    assert all(m.complete and m.size > 50_000 and m.last_used for m in found)
    names = {m.revision: m.names for m in found if m.model == MODEL}
    assert names[hub.repos[MODEL].refs["main"]] == ("main",)
    assert sorted(names.values()) == [(), ("main",)]
    assert fingerprint(cache) == before


def test_a_model_is_removed_with_all_its_revisions(cache: Path) -> None:
    freed = remove(cache, MODEL)
    assert freed > 100_000
    assert not repo_folder(cache, MODEL).exists()
    assert [m.model for m in inventory(cache)] == ["acme/other"]


def test_one_revision_is_removed_and_the_other_stays_whole(cache: Path, hub: HubServer) -> None:
    main = hub.repos[MODEL].refs["main"]
    (old,) = (m.revision for m in inventory(cache) if m.model == MODEL and not m.names)
    freed = remove(cache, MODEL, old)
    assert 50_000 <= freed < 60_000
    assert find_snapshot(cache, MODEL, old) is None
    left = find_snapshot(cache, MODEL, main)
    assert left is not None
    assert (left.path / "model.safetensors").read_bytes() == noise(50_000, 2)


def test_a_revision_goes_by_its_branch_too(cache: Path) -> None:
    remove(cache, MODEL, "main")
    assert [m.names for m in inventory(cache) if m.model == MODEL] == [()]
    assert find_snapshot(cache, MODEL, None) is None


def test_what_is_not_there_is_not_found_and_nothing_changes(cache: Path) -> None:
    before = fingerprint(cache)
    for model, revision in ((MODEL, "v9"), ("acme/none", None), ("../cache", None)):
        with pytest.raises(NotFound):
            remove(cache, model, revision)
    assert fingerprint(cache) == before


def test_a_model_that_is_being_downloaded_stays(cache: Path) -> None:
    with repo_lock(cache, MODEL):
        with pytest.raises(Conflict):
            remove(cache, MODEL)
    assert sum(m.model == MODEL for m in inventory(cache)) == 2


def test_a_download_that_has_finished_nothing_is_listed_and_removed(cache: Path) -> None:
    blobs = repo_folder(cache, "acme/begun") / "blobs"
    blobs.mkdir(parents=True)
    (blobs / "x.part").write_bytes(bytes(1_000))
    (begun,) = (m for m in inventory(cache) if m.model == "acme/begun")
    assert (begun.revision, begun.size, begun.complete) == (None, 1_000, False)
    assert remove(cache, "acme/begun") == 1_000
    assert not blobs.exists()
