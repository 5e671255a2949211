"""Claim, record and fence, over a real database."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
from sqlalchemy.exc import OperationalError

from controlplane.domain.deployment import IntentKind
from controlplane.domain.phases import Desired, Phase
from controlplane.domain.reasons import Reason
from controlplane.persistence import events, leases, status, timers
from controlplane.persistence.mapping import to_status
from tests.worker.desk import Desk
from worker.drivers.fake import FakeDriver
from worker.reconciler.apply import Outdated, record
from worker.reconciler.observe import Lookout, read
from worker.reconciler.plan import plan

pytestmark = pytest.mark.system
LEASE = timedelta(seconds=10)


def test_a_new_deployment_becomes_ready_and_a_deleted_one_frees_its_name(desk: Desk) -> None:
    desk.gateway()
    d = desk.deploy("hello")
    desk.until(d, Phase.READY)
    assert desk.world.running(d) == 1
    assert [r.route for r in desk.rows()] == ["serving"]
    desk.desire(d, Desired.DELETED)
    desk.until(d, Phase.DELETED)
    assert desk.rows() == []
    assert desk.sql("SELECT released_at IS NOT NULL FROM deployments") is True
    assert desk.sql("SELECT count(*) FROM timers") == 0
    with desk.sessions.begin() as session:
        told = [e.phase for e in events.page(session, d, "default", before=None, limit=50)]
    assert list(reversed(told)) == ["starting", "ready", "stopping", "deleted"]


def test_each_phase_step_raises_the_epoch_and_the_version(desk: Desk) -> None:
    d = desk.deploy("hello")
    epoch, version = desk.sql("SELECT epoch FROM route_epoch"), desk.row(d).version
    desk.until(d, Phase.READY)
    assert desk.sql("SELECT epoch FROM route_epoch") >= epoch + 2
    assert desk.row(d).version >= version + 2
    epoch, version = desk.sql("SELECT epoch FROM route_epoch"), desk.row(d).version
    desk.reconciler().reconcile(d)
    assert desk.sql("SELECT epoch FROM route_epoch") == epoch
    assert desk.row(d).version == version


def test_workers_at_once_on_one_deployment_have_exactly_one_effect(desk: Desk) -> None:
    d = desk.deploy("hello")
    workers = [desk.reconciler(f"w{n}") for n in range(4)]
    barrier = threading.Barrier(len(workers))

    def work(n: int) -> None:
        barrier.wait()
        for _ in range(5):
            workers[n].reconcile(d)

    with ThreadPoolExecutor(len(workers)) as pool:
        list(pool.map(work, range(len(workers))))
    desk.until(d, Phase.READY)
    assert desk.world.log == [("start", d)]
    assert len(desk.rows()) == 1


def test_deployments_at_once_never_share_a_slot(desk: Desk) -> None:
    ids = [desk.deploy(f"d{n}") for n in range(4)]
    with ThreadPoolExecutor(4) as pool:
        for _ in range(3):
            list(pool.map(lambda i: desk.reconciler(i).reconcile(i), ids))
    held = [device for r in desk.rows() for device in r.devices]
    assert held == ["cpu-0"]
    assert desk.world.running() == 1
    waiting = [i for i in ids if desk.phase(i) is Phase.QUEUED]
    assert {desk.row(i).reason for i in waiting} <= {Reason.WAITING_FOR_GPU, None}


def test_a_busy_lease_puts_the_look_off_and_loses_it_not(desk: Desk) -> None:
    d = desk.deploy("hello")
    with desk.sessions.begin() as session:
        token = leases.claim(session, d, "other", LEASE)
    assert token is not None
    desk.reconciler().reconcile(d)
    assert desk.world.log == []
    assert desk.sql("SELECT count(*) FROM timers") == 1
    with desk.sessions.begin() as session:
        leases.release(session, d, token)
    desk.until(d, Phase.READY)


def test_a_stale_token_writes_nothing(desk: Desk) -> None:
    d = desk.deploy("hello")
    with desk.sessions.begin() as session:
        old = leases.claim(session, d, "slow", timedelta(0))
    with desk.sessions.begin() as session:
        assert leases.claim(session, d, "fast", LEASE) == (old or 0) + 1
    assert old is not None
    f = _facts(desk, d)
    before = desk.row(d)
    with pytest.raises(Outdated), desk.sessions.begin() as session:
        record(session, f, plan(f), old)
    after = desk.row(d)
    assert (after.version, after.phase, desk.rows()) == (before.version, "queued", [])
    with desk.sessions.begin() as session:
        leases.release(session, d, old)
    assert desk.row(d).lease_owner == "fast"


@pytest.mark.parametrize("change", ["spec", "wish"])
def test_a_plan_for_another_generation_or_wish_writes_nothing(desk: Desk, change: str) -> None:
    d = desk.deploy("hello")
    with desk.sessions.begin() as session:
        token = leases.claim(session, d, "w1", LEASE)
    assert token is not None
    f = _facts(desk, d)
    if change == "spec":
        desk.sql("UPDATE deployments SET generation = 2 RETURNING 1")
    else:
        desk.desire(d, Desired.PAUSED)
    with pytest.raises(Outdated), desk.sessions.begin() as session:
        record(session, f, plan(f), token)
    assert desk.rows() == []


def _facts(desk: Desk, d: str):  # type: ignore[no-untyped-def]
    lookout = Lookout(desk.settings, FakeDriver(desk.world))
    devices = lookout.devices()
    with desk.sessions.begin() as session:
        book = read(session)
    entry = book.entries[d]  # type: ignore[index]
    return lookout.facts(book, entry, lookout.observe([entry], devices)[d], devices)  # type: ignore[index]


class Died(BaseException):
    """As SIGKILL does: nothing of ours runs after it."""


@pytest.mark.parametrize("effect", ["start", "stop", "forget"])
@pytest.mark.parametrize("moment", ["before", "after"])
def test_who_is_killed_around_an_effect_is_followed_by_one_who_goes_on(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, effect: str, moment: str
) -> None:
    desk.gateway()
    d = desk.deploy("hello")
    real = getattr(FakeDriver, effect)

    def deadly(self: FakeDriver, *args: object, **more: object) -> None:
        if moment == "after":
            real(self, *args, **more)
        raise Died

    def until_death() -> None:
        reconciler = desk.reconciler("doomed")
        monkeypatch.setattr("worker.reconciler.loop.Reconciler._let_go", lambda *_: None)
        monkeypatch.setattr(FakeDriver, effect, deadly)

        def look_until_it_dies() -> None:
            for _ in range(20):
                reconciler.reconcile(d)
                with desk.sessions.begin() as session:
                    leases.release_all(session, "doomed")

        with pytest.raises(Died):
            look_until_it_dies()
        monkeypatch.undo()
        assert desk.row(d).lease_owner == "doomed"

    if effect == "start":
        until_death()
    else:
        desk.until(d, Phase.READY)
        desk.desire(d, Desired.DELETED)
        until_death()
    with desk.sessions.begin() as session:
        leases.release_all(session, "doomed")
    if effect == "start":
        desk.until(d, Phase.READY)
        assert desk.world.log == [("start", d)]
        desk.desire(d, Desired.DELETED)
    desk.until(d, Phase.DELETED)
    assert (desk.rows(), desk.world.running()) == ([], 0)


def test_a_bad_row_says_so_and_blocks_nobody(desk: Desk) -> None:
    bad = desk.deploy("bad", colour="red")
    good = desk.deploy("good")
    desk.until(good, Phase.READY)
    assert desk.row(bad).reason == Reason.INVALID_SPEC
    assert "colour" in desk.row(bad).message
    desk.desire(bad, Desired.DELETED)
    desk.until(bad, Phase.DELETED)


def test_a_wake_without_a_free_slot_puts_the_idle_one_to_sleep(desk: Desk) -> None:
    desk.gateway()
    one = desk.deploy("one", scale_down={"policy": "idle", "after": "1h"})
    two = desk.deploy("two", scale_down={"policy": "idle", "after": "1h"})
    desk.until(one, Phase.READY)
    desk.until(two, Phase.QUEUED)
    desk.ask(two, IntentKind.WAKE)
    desk.until(two, Phase.READY)
    assert desk.phase(one) is Phase.ASLEEP
    assert desk.row(one).reason == Reason.MADE_ROOM
    assert desk.world.running() == 1
    desk.ask(one, IntentKind.WAKE)
    desk.until(one, Phase.READY)
    assert desk.phase(two) is Phase.ASLEEP


def test_who_never_sleeps_makes_no_room_and_is_named(desk: Desk) -> None:
    desk.gateway()
    one = desk.deploy("one")
    two = desk.deploy("two")
    desk.until(one, Phase.READY)
    desk.ask(two, IntentKind.WAKE)
    for _ in range(5):
        desk.reconciler().reconcile(two)
    assert desk.phase(one) is Phase.READY
    assert desk.row(two).reason == Reason.WAITING_FOR_GPU
    assert "one" in desk.row(two).message


def test_a_wish_for_an_earlier_look_wins_over_a_later_one(desk: Desk) -> None:
    d = desk.deploy("hello")
    with desk.sessions.begin() as session:
        timers.schedule(session, d, 0)
        timers.schedule(session, d, 3600)
        assert timers.take_due(session, most=10, again=10) == [d]
        assert timers.take_due(session, most=10, again=10) == []


def test_a_former_self_gives_back_its_own_leases_only(desk: Desk) -> None:
    a, b = desk.deploy("aa"), desk.deploy("bb")
    with desk.sessions.begin() as session:
        leases.claim(session, a, "me", LEASE)
        leases.claim(session, b, "other", LEASE)
        leases.release_all(session, "me")
    assert (desk.row(a).lease_owner, desk.row(b).lease_owner) == (None, "other")


def test_a_refused_effect_is_a_failure_with_its_reason(desk: Desk) -> None:
    from worker.drivers.base import EffectRefused

    d = desk.deploy("hello")
    desk.world.refuses[d] = EffectRefused(Reason.BAD_ENGINE_ARGUMENTS, "No such flag.")
    desk.until(d, Phase.FAILED)
    assert desk.row(d).reason == Reason.BAD_ENGINE_ARGUMENTS
    assert desk.row(d).message == "No such flag."
    assert desk.rows() == []


def test_a_database_that_fails_is_logged_and_raises_nothing(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    d = desk.deploy("hello")

    def fails(*_: object, **__: object) -> None:
        raise OperationalError("SELECT 1", {}, Exception("gone"))

    monkeypatch.setattr(status, "record", fails)
    desk.reconciler().reconcile(d)
    monkeypatch.undo()
    assert desk.row(d).lease_owner is None
    desk.until(d, Phase.READY)
    assert to_status(desk.row(d)).attempts == 0


def test_a_slot_that_becomes_free_is_told_to_who_waits(desk: Desk) -> None:
    desk.gateway()
    one, two = desk.deploy("one"), desk.deploy("two")
    desk.until(one, Phase.READY)
    desk.reconciler().reconcile(two)
    desk.sql("UPDATE timers SET due_at = now() + interval '1 hour' RETURNING 1")
    desk.desire(one, Desired.PAUSED)
    reconciler = desk.reconciler()
    for _ in range(10):
        reconciler.reconcile(one)
    assert desk.phase(one) is Phase.PAUSED
    soon = desk.sql(
        "SELECT due_at <= clock_timestamp() FROM timers WHERE deployment_id = :d", d=two
    )
    assert soon is True
    assert to_status(desk.row(two)).waiting_since is not None
