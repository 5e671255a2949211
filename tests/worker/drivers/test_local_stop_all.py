"""Stopping everything, and hearing of changes soon."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

from controlplane.domain.deployment import DeploymentId
from tests.worker.drivers.contract import fence, until
from tests.worker.drivers.stubs import LocalWorld
from worker.drivers.base import ReplicaState
from worker.drivers.local.records import replica_folders
from worker.drivers.local.watch import Watcher

ROOT = Path(__file__).parents[3]


def _stop_all(world: LocalWorld, grace: str = "10") -> subprocess.CompletedProcess[str]:
    environ = os.environ | {
        "SLIPSTREAM_DATA_DIR": str(world.settings.data_dir),
        "SLIPSTREAM_STOP_GRACE": grace,
    }
    return subprocess.run(
        [sys.executable, "-m", "worker.drivers.local.stop_all"],
        env=environ,
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_all_engines_stop_at_a_word_and_none_counts_as_failed(local: LocalWorld) -> None:
    a, b, c = (local.deployment(n) for n in ("aa", "bb", "cc"))
    local.hold_back(c)
    local.up(a)
    local.up(b)
    local.driver.start(local.order(c), fence(c))
    done = _stop_all(local)
    assert (done.returncode, done.stderr) == (0, "Stopped 3 engines.\n")
    assert not local.leftovers()
    assert [local.seen(d) for d in (a, b, c)] == [(), (), ()]


def test_an_engine_that_hangs_is_killed_after_the_grace(local: LocalWorld) -> None:
    d = local.deployment()
    local.steer(d, hang_on_term=True, spawn_child=True)
    local.up(d)
    assert _stop_all(local, grace="0.2").returncode == 0
    assert not local.leftovers()
    assert local.seen(d) == ()


def test_an_engine_that_had_failed_before_is_still_a_failure_afterwards(
    local: LocalWorld,
) -> None:
    d = local.deployment()
    local.up(d)
    local.die(d, 1)
    until(lambda: local.state(d) is ReplicaState.EXITED)
    done = _stop_all(local)
    assert (done.returncode, done.stderr) == (0, "")
    assert local.state(d) is ReplicaState.EXITED


def test_stopping_all_where_nothing_ever_ran_says_nothing(local: LocalWorld) -> None:
    done = _stop_all(local)
    assert (done.returncode, done.stderr, done.stdout) == (0, "", "")


class Told:
    """Who was told of, in order."""

    def __init__(self) -> None:
        self.ids: list[DeploymentId] = []
        self.lock = threading.Lock()

    def __call__(self, deployment_id: DeploymentId) -> None:
        with self.lock:
            self.ids.append(deployment_id)


def test_each_change_of_an_engine_is_told_once(local: LocalWorld) -> None:
    told = Told()
    watcher = Watcher(local.data, told)
    d = local.deployment()
    local.up(d)
    watcher.look_once()
    assert told.ids == [d.id]
    watcher.look_once()
    assert told.ids == [d.id]
    local.die(d, 0)
    watcher.look_once()
    watcher.look_once()
    assert told.ids == [d.id, d.id]


def test_a_start_that_moves_on_is_told_of(local: LocalWorld) -> None:
    told = Told()
    d = local.deployment()
    local.hold_back(d)
    local.driver.start(local.order(d), fence(d))
    [folder] = replica_folders(local.data, d.id)
    until(lambda: "init engine" in folder.log.read_text())
    watcher = Watcher(local.data, told)
    watcher.look_once()
    watcher.look_once()
    assert told.ids == [d.id]


def test_the_watcher_goes_on_after_a_listener_that_fails(local: LocalWorld) -> None:
    told = Told()

    def fail_first(deployment_id: DeploymentId) -> None:
        told(deployment_id)
        if len(told.ids) == 1:
            raise RuntimeError("no broker")

    watcher = Watcher(local.data, fail_first, every=0.02)
    watcher.start()
    try:
        for n in range(2):
            d = local.deployment(f"d{n}")
            local.up(d)
        until(lambda: len(set(told.ids)) == 2)
    finally:
        watcher.stop()
