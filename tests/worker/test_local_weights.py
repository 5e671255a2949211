"""What a worker sees of the weights on its machine, without a child and without a hub."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from huggingface_hub import close_session

from controlplane.domain.reasons import Reason
from controlplane.hub.cache import repo_folder
from controlplane.hub.download import Hub, download
from controlplane.long_jobs import Job, Progress
from controlplane.settings import Settings
from tests.hub_server.fixtures import hub, machine
from tests.hub_server.machine import Machine, fingerprint
from tests.hub_server.repos import tiny_model
from tests.hub_server.server import HubServer
from worker.drivers.base import EffectRefused, WeightsOrder, WeightsState
from worker.drivers.local.weights import SETUP_SECONDS, LocalWeights

__all__ = ["hub", "machine"]

MODEL = "acme/tiny"


@pytest.fixture(autouse=True)
def _sessions_end() -> Iterator[None]:
    yield
    close_session()


@pytest.fixture
def shared(tmp_path: Path, hub: HubServer) -> Path:
    """A person's own hub cache, filled by the real client."""
    hub.add(MODEL, tiny_model(3_000, shards=2))
    download(Hub(hub.url), tmp_path / "shared", MODEL, None, report=lambda _: None)
    hub.requests.clear()
    return tmp_path / "shared"


def test_weights_that_are_not_here_are_absent(machine: Machine, hub: HubServer) -> None:
    assert machine.weights.observe(MODEL, None).state is WeightsState.ABSENT
    assert not hub.requests
    assert not machine.data_dir.exists()


def test_a_second_start_downloads_nothing(machine: Machine, hub: HubServer) -> None:
    hub.add(MODEL, tiny_model())
    first = machine.fetched(MODEL)
    hub.requests.clear()
    assert machine.fetched(MODEL) == first
    assert machine.weights.observe(MODEL, None).state is WeightsState.READY
    assert not hub.requests


def test_a_hub_that_is_down_is_in_nobodys_way_once_weights_are_here(
    machine: Machine, hub: HubServer
) -> None:
    hub.add(MODEL, tiny_model())
    first = machine.fetched(MODEL)
    hub.down()
    assert machine.fetched(MODEL) == first
    assert machine.fetched(MODEL, first.revision) == first


def test_a_branch_that_moved_on_changes_nothing_here(machine: Machine, hub: HubServer) -> None:
    hub.add(MODEL, tiny_model(seed=1))
    first = machine.fetched(MODEL)
    hub.add(MODEL, tiny_model(seed=2))
    assert machine.fetched(MODEL) == first


def test_a_failure_stands_until_a_fetch_is_ordered_again(machine: Machine, hub: HubServer) -> None:
    hub.faults.status = 503
    failed = machine.fetched(MODEL)
    hub.faults.status = None
    hub.add(MODEL, tiny_model())
    before = len(hub.requests)
    assert machine.weights.observe(MODEL, None) == failed
    assert len(hub.requests) == before
    assert machine.fetched(MODEL).state is WeightsState.READY


def test_weights_removed_from_the_cache_are_absent_again(machine: Machine, hub: HubServer) -> None:
    hub.add(MODEL, tiny_model())
    machine.fetched(MODEL)
    shutil.rmtree(repo_folder(machine.data.hub_cache, MODEL))
    assert machine.weights.observe(MODEL, None).state is WeightsState.ABSENT


@pytest.mark.parametrize("older_client", [False, True])
def test_a_cache_that_is_here_already_is_used_in_place_and_stays_as_it_is(
    machine: Machine, hub: HubServer, shared: Path, older_client: bool
) -> None:
    if older_client:
        shutil.rmtree(repo_folder(shared, MODEL) / "trees")
    before = fingerprint(shared)
    machine.shared_cache = shared
    seen = machine.fetched(MODEL)
    assert seen.state is WeightsState.READY
    assert seen.path is not None
    assert Path(seen.path).is_relative_to(shared)
    assert seen.revision == hub.repos[MODEL].refs["main"]
    assert fingerprint(shared) == before
    assert not hub.requests


def test_a_part_of_a_model_in_another_cache_is_left_alone(
    machine: Machine, hub: HubServer, shared: Path
) -> None:
    (shard,) = repo_folder(shared, MODEL).rglob("model-00002-of-00002.safetensors")
    shard.unlink()
    before = fingerprint(shared)
    machine.shared_cache = shared
    assert machine.weights.observe(MODEL, None).state is WeightsState.ABSENT
    seen = machine.fetched(MODEL)
    assert seen.path is not None
    assert Path(seen.path).is_relative_to(machine.data.hub_cache)
    assert fingerprint(shared) == before


@pytest.mark.parametrize(
    "revision", ["../../etc", "main/../../x", "/etc/passwd", "a\nb", "$(x)", "", "x" * 10_000]
)
def test_a_hostile_revision_reaches_no_path_and_no_hub(
    machine: Machine, hub: HubServer, tmp_path: Path, revision: str
) -> None:
    before = fingerprint(tmp_path)
    machine.fetch(MODEL, revision)
    seen = machine.weights.observe(MODEL, revision)
    assert (seen.state, seen.reason) == (WeightsState.FAILED, Reason.MODEL_NOT_FOUND)
    assert len(seen.detail) < 200
    assert fingerprint(tmp_path) == before
    assert not hub.requests


def test_a_hostile_model_reaches_no_path_and_no_hub(machine: Machine, hub: HubServer) -> None:
    for model in ("../../etc", "a/..", "local/../../etc", "demo/..", "a/b/c"):
        machine.fetch(model)
        assert machine.weights.observe(model, None).reason is Reason.MODEL_NOT_FOUND
    assert not machine.data_dir.exists()
    assert not hub.requests


def test_a_demo_model_is_ready_once_it_is_complete(machine: Machine) -> None:
    folder = machine.data.demo_models / "smollm2-draft"
    folder.mkdir(parents=True)
    (folder / "slipstream.json").write_text('{"vocabulary": "heterogeneous"}')
    assert machine.weights.observe("demo/smollm2-draft", None).state is not WeightsState.READY
    (folder / ".complete").touch()
    seen = machine.weights.observe("demo/smollm2-draft", None)
    assert (seen.state, seen.path) == (WeightsState.READY, str(folder))
    assert seen.heterogeneous
    assert seen.revision is None


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_demo_model_that_nobody_makes_says_how_to_make_it(
    machine: Machine, hub: HubServer
) -> None:
    clock = Clock()
    weights = LocalWeights(Settings(machine.data_dir), dict, clock=clock)
    weights.fetch(WeightsOrder("demo/smollm2-135m"))
    assert weights.observe("demo/smollm2-135m", None).state is WeightsState.FETCHING
    clock.now = SETUP_SECONDS
    seen = weights.observe("demo/smollm2-135m", None)
    assert (seen.state, seen.reason) == (WeightsState.FAILED, Reason.MODEL_NOT_FOUND)
    assert "slipstream demo-models" in seen.detail
    assert not hub.requests


@pytest.mark.parametrize("job", ["models/demo", "models/demo/smollm2-135m", "engines/cpu-0.32.0"])
def test_a_demo_model_is_on_its_way_while_the_setup_works(machine: Machine, job: str) -> None:
    clock = Clock()
    weights = LocalWeights(Settings(machine.data_dir), dict, clock=clock)
    with Job(machine.data_dir / job).work() as report:
        report(Progress(0.25, "step", "Working."))
        for now in (0.0, 1_000.0):
            clock.now = now
            seen = weights.observe("demo/smollm2-135m", None)
            assert seen.state is WeightsState.FETCHING
            assert seen.fraction == (None if job.startswith("engines") else 0.25)
    clock.now = 1_001.0
    assert weights.observe("demo/smollm2-135m", None).state is WeightsState.FETCHING
    clock.now = 1_001.0 + SETUP_SECONDS
    assert weights.observe("demo/smollm2-135m", None).state is WeightsState.FAILED


def write(folder: Path, files: dict[str, bytes]) -> Path:
    folder.mkdir()
    for name, content in files.items():
        if "/" not in name:
            (folder / name).write_bytes(content)
    return folder


def test_a_registered_folder_is_used_where_it_lies(machine: Machine, tmp_path: Path) -> None:
    folder = write(tmp_path / "mine", tiny_model(shards=2))
    machine.registered = {"mine": str(folder)}
    seen = machine.weights.observe("local/mine", None)
    assert (seen.state, seen.path) == (WeightsState.READY, str(folder))


def test_a_name_that_nobody_registered_is_not_found(machine: Machine) -> None:
    seen = machine.weights.observe("local/mine", None)
    assert seen.reason is Reason.MODEL_NOT_FOUND


@pytest.mark.parametrize(
    ("lacking", "says"),
    [
        ("config.json", "no config.json"),
        ("model-00001-of-00002.safetensors", "1 of the files"),
    ],
)
def test_a_registered_folder_that_lacks_a_part_is_refused(
    machine: Machine, tmp_path: Path, lacking: str, says: str
) -> None:
    folder = write(tmp_path / "mine", tiny_model(shards=2))
    (folder / lacking).unlink()
    machine.registered = {"mine": str(folder)}
    seen = machine.weights.observe("local/mine", None)
    assert (seen.state, seen.reason) == (WeightsState.FAILED, Reason.BAD_WEIGHTS)
    assert says in seen.detail


def test_a_registered_folder_that_is_gone_is_told(machine: Machine, tmp_path: Path) -> None:
    machine.registered = {"mine": str(tmp_path / "gone")}
    assert machine.weights.observe("local/mine", None).reason is Reason.BAD_WEIGHTS


def test_a_slipstream_json_that_is_garbage_says_nothing(machine: Machine, tmp_path: Path) -> None:
    folder = write(tmp_path / "mine", tiny_model())
    machine.registered = {"mine": str(folder)}
    for content in (b"", b"[]", b"\xff", b'{"vocabulary": 1}', b"[" * 100_000):
        (folder / "slipstream.json").write_bytes(content)
        seen = machine.weights.observe("local/mine", None)
        assert (seen.state, seen.heterogeneous) == (WeightsState.READY, False)


def test_a_download_that_can_not_be_begun_is_refused_with_its_reason(machine: Machine) -> None:
    machine.data_dir.mkdir()
    machine.data.downloads.touch()  # a file in the folder's place
    with pytest.raises(EffectRefused) as e:
        machine.fetch(MODEL)
    assert e.value.reason is Reason.DOWNLOAD_FAILED
