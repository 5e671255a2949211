"""What survives whom: workers, keepers, engines and their parts, killed one by one."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest

from controlplane.domain.deployment import Deployment
from controlplane.domain.reasons import Reason
from tests.worker.drivers.contract import fence, until
from tests.worker.drivers.dying_worker import STEPS
from tests.worker.drivers.stubs import LocalWorld
from worker.drivers.base import ReplicaState
from worker.drivers.local.records import Life, ReplicaFolder, replica_folders

ROOT = Path(__file__).parents[3]


def _worker(world: LocalWorld, step: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "tests.worker.drivers.dying_worker", str(world.folder), step],
        cwd=ROOT,
    )


def _folder(world: LocalWorld, d: Deployment) -> ReplicaFolder:
    [folder] = replica_folders(world.data, d.id)
    return folder


def _life(world: LocalWorld, d: Deployment) -> Life:
    life = _folder(world, d).life()
    assert life is not None
    return life


def _kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize("step", sorted(STEPS))
def test_a_worker_killed_at_any_step_of_a_start_leaves_a_start_that_can_be_repeated(
    local: LocalWorld, step: str
) -> None:
    d = local.deployment()
    assert _worker(local, step).wait(30) == -signal.SIGKILL
    local.driver.start(local.order(d), fence(d, token=2))
    until(lambda: local.state(d) is ReplicaState.ANSWERING)
    assert local.processes(d) == 1
    assert len(local.starts(d)) == 1


@pytest.mark.parametrize("step", sorted(STEPS))
def test_a_worker_killed_at_any_step_of_a_start_leaves_nothing_that_a_stop_misses(
    local: LocalWorld, step: str
) -> None:
    d = local.deployment()
    assert _worker(local, step).wait(30) == -signal.SIGKILL
    local.driver.stop(d.id, 0, "0123456789", kill=True, fence=fence(d, token=2))
    until(lambda: d.id in local.driver.observe([d]) and not local.seen(d))
    local.driver.forget(d.id, fence(d, token=2))
    assert not local.leftovers()
    assert not local.data.deployment(d.id).exists()


def test_two_workers_that_start_at_once_start_one_engine(local: LocalWorld) -> None:
    d = local.deployment()
    workers = [_worker(local, "done") for _ in range(4)]
    for w in workers:
        assert w.wait(60) == -signal.SIGKILL
    until(lambda: local.state(d) is ReplicaState.ANSWERING)
    assert local.processes(d) == 1
    assert len(local.starts(d)) == 1


def test_starts_at_once_choose_different_ports(local: LocalWorld) -> None:
    ds = [local.deployment(f"d{n}") for n in range(6)]
    with ThreadPoolExecutor(6) as pool:
        list(pool.map(lambda d: local.driver.start(local.order(d), fence(d)), ds))
    orders = [_folder(local, d).order() for d in ds]
    assert len({o.port for o in orders if o}) == 6


def test_an_engine_is_nobodys_child_so_a_worker_keeps_no_zombies(local: LocalWorld) -> None:
    d = local.deployment()
    local.up(d)
    ours = {p.pid for p in psutil.Process().children(recursive=True)}
    life = _life(local, d)
    assert not ours & {life.pid, life.session}
    _kill(life.pid)
    until(lambda: local.state(d) is ReplicaState.EXITED)
    assert not {p.pid for p in psutil.Process().children()} & {life.pid, life.session}


def test_an_engine_outlives_its_keeper_and_can_still_be_stopped(local: LocalWorld) -> None:
    d = local.deployment()
    before = local.up(d)
    _kill(_life(local, d).session)
    assert local.seen(d) == (before,)
    local.driver.start(local.order(d), fence(d))
    assert local.processes(d) == 1
    local.driver.stop(d.id, 0, "0123456789", kill=False, fence=fence(d))
    until(lambda: not local.seen(d))


def test_an_engine_that_died_without_a_keeper_is_seen_and_started_anew(
    local: LocalWorld,
) -> None:
    d = local.deployment()
    local.up(d)
    life = _life(local, d)
    _kill(life.session)
    _kill(life.pid)
    seen = until(lambda: [s for s in local.seen(d) if s.state is ReplicaState.EXITED])[0]
    assert (seen.reason, seen.detail) == (
        Reason.ENGINE_DIED,
        "It is gone, and nobody saw how it ended.",
    )
    local.up(d)
    assert local.processes(d) == 1


def test_parts_of_a_dead_engine_are_ended_by_its_keeper(local: LocalWorld) -> None:
    d = local.deployment()
    local.steer(d, spawn_child=True)
    local.up(d)
    child = local.starts(d)[0]["child"]
    _kill(_life(local, d).pid)
    until(lambda: not psutil.pid_exists(child))
    assert local.state(d) is ReplicaState.EXITED


def test_parts_that_outlive_engine_and_keeper_are_ended_before_the_next_start(
    local: LocalWorld,
) -> None:
    d = local.deployment()
    local.steer(d, spawn_child=True)
    local.up(d)
    life, child = _life(local, d), local.starts(d)[0]["child"]
    _kill(life.session)
    _kill(life.pid)
    until(lambda: local.state(d) is ReplicaState.EXITED)
    assert psutil.pid_exists(child)
    local.up(d)
    until(lambda: not psutil.pid_exists(child))
    assert local.processes(d) == 1


def test_a_kill_ends_every_part_of_an_engine(local: LocalWorld) -> None:
    d = local.deployment()
    local.steer(d, spawn_child=True, hang_on_term=True)
    local.up(d)
    local.driver.stop(d.id, 0, "0123456789", kill=True, fence=fence(d))
    until(lambda: not local.seen(d))
    assert not local.leftovers()


def test_an_engine_core_that_is_killed_ends_the_engine_with_0_and_is_a_failure(
    local: LocalWorld,
) -> None:
    d = local.deployment()
    local.steer(d, spawn_child=True)
    local.up(d)
    _kill(local.starts(d)[0]["child"])
    seen = until(lambda: [s for s in local.seen(d) if s.state is ReplicaState.EXITED])[0]
    assert (seen.reason, seen.detail) == (
        Reason.ENGINE_DIED,
        "It ended with exit status 0.",
    )


def test_an_engine_killed_from_outside_says_by_which_signal(local: LocalWorld) -> None:
    d = local.deployment()
    local.up(d)
    _kill(_life(local, d).pid)
    seen = until(lambda: [s for s in local.seen(d) if s.state is ReplicaState.EXITED])[0]
    assert (seen.reason, seen.detail) == (Reason.ENGINE_DIED, "It was ended by SIGKILL.")


def test_after_a_reboot_an_engine_has_ended_whatever_runs_under_its_pid(
    local: LocalWorld,
) -> None:
    d = local.deployment()
    local.up(d)
    file = _folder(local, d).process_file()
    raw = json.loads(file.read_text())
    _kill(raw["session"])
    _kill(raw["pid"])
    me = psutil.Process()
    started = Path(f"/proc/{me.pid}/stat").read_text().rpartition(")")[2].split()[19]
    file.write_text(json.dumps(raw | {"pid": me.pid, "started": int(started), "boot": "other"}))
    assert local.state(d) is ReplicaState.EXITED
    local.driver.stop(d.id, 0, "0123456789", kill=True, fence=fence(d))
    assert local.state(d) is None
    assert me.is_running()


def test_a_pid_that_was_given_to_another_process_is_not_the_engine(local: LocalWorld) -> None:
    d = local.deployment()
    local.up(d)
    file = _folder(local, d).process_file()
    raw = json.loads(file.read_text())
    _kill(raw["pid"])
    until(lambda: local.state(d) is ReplicaState.EXITED)
    file.write_text(json.dumps(raw | {"pid": os.getpid()}))
    assert local.state(d) is ReplicaState.EXITED
    local.driver.stop(d.id, 0, "0123456789", kill=True, fence=fence(d))
    assert local.state(d) is None


def test_records_that_a_power_cut_left_empty_hinder_no_start(local: LocalWorld) -> None:
    d, other = local.deployment(), local.deployment("other")
    local.up(d)
    local.up(other)
    life, folder = _life(local, d), _folder(local, d)
    order = folder.order()
    assert order is not None
    _kill(life.session)
    _kill(life.pid)
    until(lambda: local.processes(d) == 0)
    Path(order.tmp).rmdir()  # a power cut empties this as well
    for name in ("order.json", "process.json"):
        (folder.path / name).write_text("")
    assert local.state(d) is None
    assert local.state(other) is ReplicaState.ANSWERING
    local.up(d)


def test_records_that_are_lost_while_an_engine_lives_are_no_reason_to_call_it_gone(
    local: LocalWorld,
) -> None:
    d, other = local.deployment(), local.deployment("other")
    local.up(d)
    _folder(local, d).process_file().write_text("")
    assert set(local.driver.observe([d, other])) == {other.id}


def test_marks_of_killed_processes_in_shared_memory_are_removed_with_an_engine(
    local: LocalWorld,
) -> None:
    ended = subprocess.Popen(["true"])
    ended.wait()
    dead = Path(f"/dev/shm/__KMP_REGISTERED_LIB_{ended.pid}_0")
    alive = Path(f"/dev/shm/__KMP_REGISTERED_LIB_{os.getpid()}_99")
    d = local.deployment()
    local.up(d)
    try:
        dead.touch()
        alive.touch()
        local.driver.stop(d.id, 0, "0123456789", kill=False, fence=fence(d))
        until(lambda: not local.seen(d))
        assert not dead.exists()
        assert alive.exists()
    finally:
        dead.unlink(missing_ok=True)
        alive.unlink(missing_ok=True)
