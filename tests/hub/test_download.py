"""Fetching, where a real child or a real full disk would be too slow or too costly."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from pathlib import Path
from threading import Event

import pytest
from huggingface_hub import close_session

from controlplane.hub import large_file
from controlplane.hub.download import HEADROOM, Hub, download
from controlplane.hub.failures import DiskFull, HubUnreachable
from controlplane.hub.large_file import Source
from controlplane.hub.progress import Progress, Rate
from tests.hub_server.fixtures import hub
from tests.hub_server.repos import tiny_model
from tests.hub_server.server import HubServer

__all__ = ["hub"]

MODEL = "acme/tiny"
SHARD = 10_000_000


@pytest.fixture(autouse=True)
def _sessions_end() -> Iterator[None]:
    yield
    close_session()


@pytest.fixture
def seen() -> list[Progress]:
    return []


def test_a_disk_too_small_is_told_before_a_byte_of_weights(
    tmp_path: Path, hub: HubServer, seen: list[Progress]
) -> None:
    hub.add(MODEL, tiny_model(SHARD))
    free = HEADROOM + SHARD // 2
    with pytest.raises(DiskFull) as e:
        download(Hub(hub.url), tmp_path, MODEL, None, report=seen.append, free=lambda _: free)
    assert "needs 10.0 MB more" in e.value.message
    assert "273.4 MB are free" in e.value.message
    assert hub.sent_bytes() == 0


def test_what_is_here_already_is_not_counted_as_needed(
    tmp_path: Path, hub: HubServer, seen: list[Progress]
) -> None:
    hub.add(MODEL, tiny_model(SHARD))
    download(Hub(hub.url), tmp_path, MODEL, None, report=seen.append)
    free = HEADROOM + 1_000
    again = download(Hub(hub.url), tmp_path, MODEL, None, report=seen.append, free=lambda _: free)
    assert again.path.is_dir()
    assert hub.sent_bytes() == SHARD


def test_a_disk_that_fills_up_meanwhile_is_told(
    tmp_path: Path, hub: HubServer, seen: list[Progress], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    hub.add(MODEL, tiny_model(SHARD))
    monkeypatch.setattr(large_file, "_append", full)
    with pytest.raises(DiskFull):
        download(Hub(hub.url), tmp_path, MODEL, None, report=seen.append)


def test_progress_ends_at_all_bytes(tmp_path: Path, hub: HubServer, seen: list[Progress]) -> None:
    hub.add(MODEL, tiny_model(SHARD))
    download(Hub(hub.url), tmp_path, MODEL, None, report=seen.append)
    assert seen[0].done == 0
    assert seen[-1].done == seen[-1].total > SHARD


def test_one_broken_shard_ends_the_others(
    tmp_path: Path, hub: HubServer, seen: list[Progress], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(large_file, "LONGEST_PAUSE", 0.0)
    hub.add(MODEL, tiny_model(SHARD, shards=6))
    hub.faults.store_status = 503
    with pytest.raises(HubUnreachable, match="503"):
        download(Hub(hub.url), tmp_path, MODEL, None, report=seen.append)


def test_a_store_that_never_sends_enough_is_given_up(
    tmp_path: Path, hub: HubServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(large_file, "LONGEST_PAUSE", 0.0)
    commit = hub.add(MODEL, tiny_model(SHARD))
    file = hub.repos[MODEL].commits[commit]["model.safetensors"]
    hub.faults.cut_after = 0
    source = Source(hub.url, None, MODEL, commit)
    with pytest.raises(Exception, match=r"peer closed|disconnected"):
        large_file.fetch(source, file.path, SHARD, file.sha256, tmp_path, Event())
    store = [r for r in hub.requests if r.server == "store"]
    assert len(store) == large_file.ATTEMPTS


def test_time_left_follows_the_rate_of_the_last_while() -> None:
    rate = Rate()
    assert rate.eta(0.0, 0, 1_000) is None
    assert rate.eta(10.0, 100, 1_000) == 90
    assert rate.eta(20.0, 600, 1_000) == 13
    assert rate.eta(45.0, 600, 1_000) is None
