"""The sweep, its housekeeping, and what guards them."""

from __future__ import annotations

import os
import threading
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from controlplane.domain.deployment import DeploymentId
from controlplane.domain.phases import Phase
from controlplane.hints import Hints
from controlplane.persistence import passes
from controlplane.settings import Settings, Stores
from tests.worker.desk import Desk
from worker.drivers.base import Fence
from worker.drivers.fake import FakeDriver
from worker.identity import take_identity
from worker.pacer import Direct, Pacer
from worker.reconciler import garbage
from worker.reconciler.garbage import Collector, may_collect
from worker.reconciler.sweep import PASS, Sweeper
from worker.watchdog import Watchdog


def _sweeper(desk: Desk, told: list[str], owner: str = "w1") -> Sweeper:
    driver = FakeDriver(desk.world)
    return Sweeper(desk.settings, desk.sessions, driver, owner, Watchdog(), told.append)


@pytest.mark.system
def test_a_sweep_tells_of_what_would_change_and_of_nothing_else(desk: Desk) -> None:
    one, two = desk.deploy("one"), desk.deploy("two")
    desk.until(one, Phase.READY)
    desk.reconciler().reconcile(two)
    told: list[str] = []
    _sweeper(desk, told).sweep()
    assert told == []
    desk.world.end(one)
    _sweeper(desk, told, "w2").sweep(at_once=True)
    assert told == [one]


@pytest.mark.system
def test_two_beats_sweep_once(desk: Desk) -> None:
    d = desk.deploy("hello")
    told: list[str] = []
    for owner in ("w1", "w2", "w1"):
        _sweeper(desk, told, owner).sweep()
    assert told == [d]
    with desk.sessions.begin() as session:
        assert not passes.is_late(session, PASS, after=timedelta(seconds=5))
        assert passes.is_late(session, "another", after=timedelta(seconds=5))


@pytest.mark.system
def test_a_sweep_forgets_gateways_that_are_gone_and_keys_that_are_old(desk: Desk) -> None:
    d = desk.deploy("hello")
    desk.gateway()
    desk.sql("UPDATE gateways SET seen_at = now() - interval '61 seconds' RETURNING 1")
    desk.sql(
        "INSERT INTO idempotency_keys VALUES ('default', 'k', 'x', :d, now() - interval '25 hours')"
        " RETURNING 1",
        d=d,
    )
    _sweeper(desk, []).sweep()
    assert desk.sql("SELECT count(*) FROM gateways") == 0
    assert desk.sql("SELECT count(*) FROM idempotency_keys") == 0
    assert desk.sql("SELECT count(*) FROM workers") == 1


@pytest.mark.system
def test_the_pacer_tells_of_due_looks_and_sweeps_when_nobody_else_does(desk: Desk) -> None:
    d = desk.deploy("hello")
    desk.sql("INSERT INTO timers VALUES (:d, now() - interval '1 second') RETURNING 1", d=d)
    told: list[str] = []
    swept = threading.Event()
    sweeper = _sweeper(desk, told)
    pacer = Pacer(desk.sessions, told.append, sweeper.is_late, swept.set)
    pacer.start()
    try:
        assert swept.wait(30)
    finally:
        pacer.stop()
    assert told == [d]


@pytest.mark.parametrize(
    ("rowless", "owned", "may"),
    [(0, 0, 0), (9, 9, 9), (1, 10, 1), (2, 10, 0), (10, 100, 10), (11, 100, 0), (100, 100, 0)],
)
def test_no_more_than_a_tenth_goes_at_once(rowless: int, owned: int, may: int) -> None:
    assert may_collect(rowless, owned) == may


@pytest.mark.system
def test_what_has_had_no_row_for_an_hour_is_collected(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = desk.deploy("kept")
    desk.until(kept, Phase.READY)
    stray = DeploymentId("dep_STRAY")
    driver = FakeDriver(desk.world)
    desk.world.places.add(stray)
    seen = next(iter(desk.world.replicas.values()))
    desk.world.replicas[stray, 0, "x"] = replace(seen, slot=0, render_hash="x")
    collector = Collector(driver, desk.sessions)
    collector.collect()
    collector.collect()
    assert set(driver.owned()) == {kept, stray}
    monkeypatch.setattr(garbage, "ROWLESS_FOR", timedelta(0))
    collector.collect()
    collector.collect()
    assert set(driver.owned()) == {kept}
    assert desk.world.running(kept) == 1
    driver.forget(stray, Fence(stray, 1))


def test_an_overrun_is_noticed_and_what_ends_in_time_is_not() -> None:
    late: list[str] = []
    noticed = threading.Event()

    def overrun(work: str) -> None:
        late.append(work)
        noticed.set()

    dog = Watchdog(overrun)
    dog.start()
    with dog.over("quick", 60):
        pass
    with dog.over("slow", 0):
        assert noticed.wait(30)
    dog.stop()
    assert set(late) == {"slow"}


def test_the_direct_pool_does_each_thing_that_waits_once() -> None:
    gate, done = threading.Event(), []

    def work(key: str) -> None:
        gate.wait(30)
        done.append(key)

    direct = Direct(work, 1)
    direct.submit("running")
    for _ in range(5):
        direct.submit("waiting")
    gate.set()
    direct.submit("last")
    for _ in range(1000):
        if "last" in done:
            break
        threading.Event().wait(0.01)
    direct.close()
    assert done.count("waiting") <= 2
    assert done[-1] == "last"


def test_a_hint_to_a_dead_broker_is_lost_without_a_word(tmp_path: Path) -> None:
    nobody = Stores(None, f"unix://{tmp_path}/nobody.sock")
    for stores in (nobody, Stores()):
        hints = Hints(Settings(tmp_path, stores=stores))
        hints.reconcile("dep_X")
        assert not hints.send("dep_X")
        hints.close()


def test_a_workers_name_comes_back_and_is_never_anothers(tmp_path: Path) -> None:
    first, second = take_identity(tmp_path), take_identity(tmp_path)
    assert first.name != second.name
    os.close(first.lock_fd)
    again = take_identity(tmp_path)
    assert again.name == first.name
    os.close(again.lock_fd)
    os.close(second.lock_fd)
