"""The downloader, as the real child process against a hub that speaks the real protocol."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import psutil
import pytest

from controlplane.domain.reasons import Reason
from tests.hub_server.fixtures import hub, machine
from tests.hub_server.machine import Machine, until
from tests.hub_server.repos import NEEDED, Repo, tiny_model
from tests.hub_server.server import HubServer
from worker.download_order import BUSY, UNREADABLE, Order
from worker.drivers.base import WeightsState

__all__ = ["hub", "machine"]

MODEL = "acme/tiny"
SHARD = 10_000_000  # bytes; large enough to be resumed
HALF = 9_500_000
TOKEN = "hf_a-token-of-the-tests"


def run_child(order: str, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "worker.downloader"],
        input=order,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env=os.environ | environ,
        cwd=Path(__file__).parents[2],
    )


def wait_until_half(machine: Machine, hub: HubServer, shards: int) -> None:
    """Until every shard's bytes up to the hold are on disk."""
    hold = hub.faults.hold_after
    assert hold is not None
    blobs = machine.data.hub_cache / "models--acme--tiny" / "blobs"

    def parts() -> list[int]:
        return [p.stat().st_size for p in blobs.glob("*.part")]

    until(lambda: len(parts()) == shards and min(parts()) > hold // 2, "half of each shard")


def test_a_model_is_fetched_with_what_an_engine_needs_and_nothing_else(
    machine: Machine, hub: HubServer
) -> None:
    files = tiny_model()
    commit = hub.add(MODEL, files)
    seen = machine.fetched(MODEL)
    assert machine.files(seen) == {name: files[name] for name in NEEDED}
    assert seen.revision == commit
    assert not seen.heterogeneous


def test_a_model_that_says_so_in_its_folder_is_heterogeneous(
    machine: Machine, hub: HubServer
) -> None:
    hub.add(MODEL, tiny_model() | {"slipstream.json": b'{"vocabulary": "heterogeneous"}'})
    assert machine.fetched(MODEL).heterogeneous


@pytest.mark.parametrize("by", ["tag", "commit"])
def test_a_tag_and_a_commit_are_fetched_as_they_were(
    machine: Machine, hub: HubServer, by: str
) -> None:
    old, new = tiny_model(seed=1), tiny_model(seed=2)
    commit = hub.add(MODEL, old)
    hub.repos[MODEL].refs["v1.0"] = commit
    hub.add(MODEL, new)
    seen = machine.fetched(MODEL, "v1.0" if by == "tag" else commit)
    assert seen.revision == commit
    assert machine.files(seen)["model.safetensors"] == old["model.safetensors"]


def test_a_gated_model_without_a_token_says_so(machine: Machine, hub: HubServer) -> None:
    hub.add(MODEL, tiny_model(SHARD), gated=True)
    seen = machine.fetched(MODEL)
    assert (seen.state, seen.reason) == (WeightsState.FAILED, Reason.GATED_MODEL)
    assert seen.detail == "acme/tiny is gated, and no token is set."
    assert seen.attempt_at is not None


def test_a_gated_model_needs_a_token_that_was_accepted(machine: Machine, hub: HubServer) -> None:
    hub.add(MODEL, tiny_model(), gated=True)
    hub.tokens.add(TOKEN)
    machine.token = TOKEN
    seen = machine.fetched(MODEL)
    assert seen.reason is Reason.GATED_MODEL
    assert "no access" in seen.detail
    hub.accepted.add(TOKEN)
    assert machine.fetched(MODEL).state is WeightsState.READY


def test_a_token_that_the_hub_does_not_know_is_told(machine: Machine, hub: HubServer) -> None:
    hub.add(MODEL, tiny_model())
    machine.token = TOKEN
    seen = machine.fetched(MODEL)
    assert seen.reason is Reason.GATED_MODEL
    assert "refused the token" in seen.detail


def test_a_model_that_the_hub_does_not_have_is_not_found(machine: Machine) -> None:
    seen = machine.fetched("acme/none")
    assert seen.reason is Reason.MODEL_NOT_FOUND
    assert "acme/none" in seen.detail


def test_a_revision_that_a_model_does_not_have_is_not_found(
    machine: Machine, hub: HubServer
) -> None:
    hub.add(MODEL, tiny_model())
    seen = machine.fetched(MODEL, "v9")
    assert seen.reason is Reason.MODEL_NOT_FOUND
    assert seen.detail == "acme/tiny has no revision v9."


@pytest.mark.parametrize(("retry_after", "rate_limit"), [("120", None), (None, '"api";r=0;t=120')])
def test_a_rate_limit_is_told_at_once_with_the_time_to_come_back(
    machine: Machine, hub: HubServer, retry_after: str | None, rate_limit: str | None
) -> None:
    hub.add(MODEL, tiny_model())
    hub.faults.status, hub.faults.retry_after = 429, retry_after
    hub.faults.rate_limit = rate_limit
    seen = machine.fetched(MODEL)
    assert seen.reason is Reason.HUB_RATE_LIMITED
    assert seen.retry_at is not None
    assert timedelta(seconds=30) < seen.retry_at - datetime.now(UTC) <= timedelta(seconds=120)
    assert len(hub.requests) == 1


def test_a_hub_that_answers_with_a_server_fault_is_unreachable(
    machine: Machine, hub: HubServer
) -> None:
    hub.faults.status = 503
    seen = machine.fetched(MODEL)
    assert seen.reason is Reason.HUB_UNREACHABLE
    assert "503" in seen.detail


def test_a_hub_that_is_down_is_unreachable(machine: Machine, hub: HubServer) -> None:
    hub.down()
    seen = machine.fetched(MODEL)
    assert seen.reason is Reason.HUB_UNREACHABLE
    assert seen.detail == "No connection to the hub could be made."


def test_an_offline_machine_asks_no_hub(
    machine: Machine, hub: HubServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    seen = machine.fetched(MODEL)
    assert seen.reason is Reason.HUB_UNREACHABLE
    assert "HF_HUB_OFFLINE" in seen.detail
    assert not hub.requests


def test_a_model_larger_than_the_disk_is_told_before_it_fills_it(
    machine: Machine, hub: HubServer
) -> None:
    hub.add(MODEL, tiny_model(SHARD))
    hub.faults.announce = 10**18
    seen = machine.fetched(MODEL)
    assert seen.reason is Reason.DISK_FULL
    assert "needs 1000000000.0 GB more on disk" in seen.detail
    assert hub.sent_bytes() == 0


def test_a_sign_in_page_in_the_hubs_place_is_no_hub(machine: Machine, hub: HubServer) -> None:
    hub.faults.not_a_hub = True
    seen = machine.fetched(MODEL)
    assert seen.reason is Reason.HUB_UNREACHABLE
    assert "not a hub" in seen.detail


def test_a_file_that_the_hub_lists_and_does_not_have_makes_bad_weights(
    machine: Machine, hub: HubServer
) -> None:
    hub.add(MODEL, tiny_model())
    hub.faults.missing.add("tokenizer.json")
    assert machine.fetched(MODEL).reason is Reason.BAD_WEIGHTS


def test_bytes_that_are_not_what_the_checksum_says_make_bad_weights(
    machine: Machine, hub: HubServer
) -> None:
    hub.add(MODEL, tiny_model(SHARD))
    hub.faults.spoil = True
    seen = machine.fetched(MODEL)
    assert seen.reason is Reason.BAD_WEIGHTS
    hub.faults.spoil = False
    assert machine.fetched(MODEL).state is WeightsState.READY


@pytest.mark.parametrize("lacking", ["config.json", "model.safetensors"])
def test_a_repository_that_is_no_model_is_told_before_anything_is_fetched(
    machine: Machine, hub: HubServer, lacking: str
) -> None:
    files = tiny_model()
    hub.add(MODEL, {k: v for k, v in files.items() if k != lacking and not k.endswith(".bin")})
    assert machine.fetched(MODEL).reason is Reason.BAD_WEIGHTS
    assert len(hub.requests) == 1


def test_a_connection_that_breaks_off_is_gone_on_with(machine: Machine, hub: HubServer) -> None:
    files = tiny_model(SHARD)
    hub.add(MODEL, files)
    hub.faults.cut_after, hub.faults.cuts = 4_000_000, 2
    seen = machine.fetched(MODEL)
    assert machine.files(seen)["model.safetensors"] == files["model.safetensors"]
    starts = [r.start for r in hub.requests if r.server == "store"]
    assert len(starts) == 3
    assert starts == sorted(set(starts))
    assert hub.sent_bytes() < SHARD + 2_500_000


def test_a_hub_without_ranges_gives_the_same_file(machine: Machine, hub: HubServer) -> None:
    files = tiny_model(SHARD)
    hub.add(MODEL, files)
    hub.faults.cut_after, hub.faults.cuts, hub.faults.ignore_range = 4_000_000, 1, True
    seen = machine.fetched(MODEL)
    assert machine.files(seen)["model.safetensors"] == files["model.safetensors"]


def test_progress_is_a_fact_while_it_downloads(machine: Machine, hub: HubServer) -> None:
    hub.add(MODEL, tiny_model(SHARD))
    hub.faults.hold_after = HALF

    def fraction() -> float:
        seen = machine.weights.observe(MODEL, None)
        assert seen.state is WeightsState.FETCHING
        return seen.fraction or 0.0

    machine.fetch(MODEL)
    until(lambda: fraction() > 0.5, "more than half")
    assert fraction() < 1
    hub.faults.release.set()
    assert machine.ended(MODEL).state is WeightsState.READY


def test_a_download_that_was_killed_goes_on_where_it_was(machine: Machine, hub: HubServer) -> None:
    files = tiny_model(SHARD, shards=3)
    hub.add(MODEL, files)
    hub.faults.hold_after = HALF
    machine.fetch(MODEL)
    wait_until_half(machine, hub, 3)
    os.kill(machine.child(MODEL).pid, signal.SIGKILL)
    assert machine.ended(MODEL).state is WeightsState.ABSENT
    hub.faults.hold_after = None
    hub.faults.release.set()
    before = len(hub.requests)
    seen = machine.fetched(MODEL)
    again = [r for r in hub.requests[before:] if r.server == "store"]
    assert all(r.start > HALF // 2 for r in again)
    assert sum(r.sent for r in again) < 3 * SHARD // 2
    found = machine.files(seen)
    assert all(found[name] == files[name] for name in found)


def test_a_part_that_was_spoilt_on_disk_is_fetched_anew(machine: Machine, hub: HubServer) -> None:
    files = tiny_model(SHARD)
    hub.add(MODEL, files)
    hub.faults.hold_after = HALF
    machine.fetch(MODEL)
    wait_until_half(machine, hub, 1)
    machine.weights.stop_all()
    (part,) = (machine.data.hub_cache / "models--acme--tiny" / "blobs").glob("*.part")
    part.write_bytes(bytes(part.stat().st_size))
    hub.faults.hold_after = None
    hub.faults.release.set()
    seen = machine.fetched(MODEL)
    assert machine.files(seen)["model.safetensors"] == files["model.safetensors"]


def test_going_down_ends_downloads_which_can_be_begun_again(
    machine: Machine, hub: HubServer
) -> None:
    hub.add(MODEL, tiny_model(SHARD))
    hub.faults.hold_after = HALF
    machine.fetch(MODEL)
    child = psutil.Process(machine.child(MODEL).pid)
    wait_until_half(machine, hub, 1)
    machine.weights.stop_all()
    until(lambda: not child.is_running(), "the child's end")
    assert machine.weights.observe(MODEL, None).state is WeightsState.ABSENT
    hub.faults.hold_after = None
    hub.faults.release.set()
    assert machine.fetched(MODEL).state is WeightsState.READY
    assert any(r.start for r in hub.requests)


def test_a_download_outlives_the_worker_that_began_it(machine: Machine, hub: HubServer) -> None:
    hub.add(MODEL, tiny_model(SHARD))
    hub.faults.hold_after = HALF
    worker = (
        "import os, sys; from pathlib import Path\n"
        "from controlplane.settings import Hub, Settings\n"
        "from worker.drivers.base import WeightsOrder\n"
        "from worker.drivers.local.weights import LocalWeights\n"
        "settings = Settings(Path(sys.argv[1]), hub=Hub(sys.argv[2]))\n"
        "LocalWeights(settings, dict).fetch(WeightsOrder(sys.argv[3]))\n"
        "os.kill(os.getpid(), 9)\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", worker, str(machine.data_dir), hub.url, MODEL],
        cwd=Path(__file__).parents[2],
        check=False,
        timeout=60,
    )
    assert ended.returncode == -signal.SIGKILL
    wait_until_half(machine, hub, 1)
    assert machine.weights.observe(MODEL, None).state is WeightsState.FETCHING
    hub.faults.release.set()
    assert machine.ended(MODEL).state is WeightsState.READY


def test_the_token_reaches_the_hub_and_nothing_else(machine: Machine, hub: HubServer) -> None:
    hub.add(MODEL, tiny_model(SHARD), gated=True)
    hub.tokens.add(TOKEN)
    hub.accepted.add(TOKEN)
    hub.faults.hold_after = HALF
    machine.token = TOKEN
    machine.fetch(MODEL)
    child = psutil.Process(machine.child(MODEL).pid)
    wait_until_half(machine, hub, 1)
    assert TOKEN not in " ".join(child.cmdline())
    hub.faults.release.set()
    assert machine.ended(MODEL).state is WeightsState.READY
    assert {r.token for r in hub.requests if r.server == "hub"} == {TOKEN}
    assert {r.token for r in hub.requests if r.server == "store"} == {None}
    written = [p for p in machine.data_dir.rglob("*") if p.is_file()]
    assert written
    assert not [p for p in written if TOKEN.encode() in p.read_bytes()]


def test_a_token_that_failed_stands_in_no_file_either(machine: Machine, hub: HubServer) -> None:
    hub.add(MODEL, tiny_model())
    machine.token = TOKEN
    assert machine.fetched(MODEL).state is WeightsState.FAILED
    assert machine.attempt(MODEL).log.stat().st_size > 0
    written = [p for p in machine.data_dir.rglob("*") if p.is_file()]
    assert not [p for p in written if TOKEN.encode() in p.read_bytes()]


def test_the_child_gets_no_secret_of_ours_but_the_token(
    machine: Machine, hub: HubServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLIPSTREAM_DATABASE_URL", "postgresql://secret")
    monkeypatch.setenv("SLIPSTREAM_ADMIN_KEY", "secret")
    hub.add(MODEL, tiny_model(SHARD))
    hub.faults.hold_after = HALF
    machine.fetch(MODEL)
    environment = psutil.Process(machine.child(MODEL).pid).environ()
    assert not [name for name in environment if name.startswith("SLIPSTREAM")]
    assert "HF_TOKEN" not in environment


def test_of_two_fillers_at_once_one_works_and_the_other_leaves(
    machine: Machine, hub: HubServer
) -> None:
    hub.add(MODEL, tiny_model(SHARD))
    hub.faults.hold_after = HALF
    machine.fetch(MODEL)
    machine.fetch(MODEL)
    child = machine.child(MODEL)
    folder = machine.attempt(MODEL).folder
    order = Order(MODEL, None, hub.url, machine.data.hub_cache, folder)
    assert run_child(order.to_json()).returncode == BUSY
    assert machine.child(MODEL) == child
    hub.faults.release.set()
    assert machine.ended(MODEL).state is WeightsState.READY
    assert hub.sent_bytes() == SHARD


def test_two_revisions_with_the_same_bytes_fetch_them_once(
    machine: Machine, hub: HubServer
) -> None:
    hub.repos[MODEL] = repo = Repo(MODEL)
    repo.commit(tiny_model(SHARD), "one")
    repo.commit(tiny_model(SHARD) | {"config.json": b'{"changed": 1}'}, "two")
    machine.fetch(MODEL, "one")
    machine.fetch(MODEL, "two")
    assert machine.ended(MODEL, "one").state is WeightsState.READY
    assert machine.ended(MODEL, "two").state is WeightsState.READY
    assert hub.sent_bytes() == SHARD


@pytest.mark.parametrize(
    "order", ["", "{", "[]", '{"model": "a/b"}', '{"model": 1}', "[" * 60_000, "\x00"]
)
def test_an_order_that_is_none_is_refused_in_a_sentence(order: str) -> None:
    ended = run_child(order)
    assert ended.returncode == UNREADABLE
    assert ended.stderr.startswith("The order")
    assert "Traceback" not in ended.stderr
