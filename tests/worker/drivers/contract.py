"""The suite that every driver is held to.

A test module makes a `World` for its driver, hands it out by a fixture named `world`, and
inherits `DriverContract`.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import TypeVar

import pytest

from controlplane.domain.deployment import (
    Deployment,
    DeploymentId,
    DeploymentSpec,
    Method,
    Resolved,
    Status,
)
from controlplane.domain.phases import Desired
from controlplane.domain.reasons import Reason
from controlplane.domain.tiers import Device, DeviceKind, Tier
from worker.drivers.base import (
    Driver,
    DriverError,
    EffectRefused,
    Fence,
    ReplicaOrder,
    ReplicaSeen,
    ReplicaState,
    StaleFence,
)

PATIENCE = 20.0
CPU = Tier("cpu", DeviceKind.CPU, memory_bytes=2**33, kv_cache_gib=1)
SHARE = Device("cpu-0", DeviceKind.CPU, "Test CPU", 2**33, cores=(0,))
THEN = datetime(2026, 1, 1, tzinfo=UTC)
T = TypeVar("T")


def until(what: Callable[[], T], patience: float = PATIENCE) -> T:
    """The first true value of `what`. Fails with the last one when none comes."""
    deadline = time.monotonic() + patience
    while not (value := what()):
        if time.monotonic() > deadline:
            raise AssertionError(f"still {value!r} after {patience} s")
        time.sleep(0.02)
    return value


class World(ABC):
    """One driver's surroundings, and what tests may do to the engines in it."""

    driver: Driver

    @abstractmethod
    def again(self) -> Driver:
        """A driver that knows nothing but this world: as after a worker's restart."""

    @abstractmethod
    def model_path(self, d: Deployment) -> str:
        """Where the weights of this deployment lie."""

    @abstractmethod
    def hold_back(self, d: Deployment) -> None:
        """Its engines started from now on never answer."""

    @abstractmethod
    def go_silent(self, d: Deployment) -> None:
        """Its running engines live on and do not answer any more."""

    @abstractmethod
    def ignore_term(self, d: Deployment) -> None:
        """Its engines don't end by SIGTERM."""

    @abstractmethod
    def die(self, d: Deployment, status: int) -> None:
        """Its running engines end by themselves with this exit status."""

    @abstractmethod
    def processes(self, d: Deployment) -> int:
        """How many engines of it run, by the world's own count and not the driver's."""

    def deployment(self, name: str = "hello") -> Deployment:
        return Deployment(
            id=DeploymentId(f"dep_{name.upper()}"),
            workspace="default",
            name=name,
            spec=DeploymentSpec(name=name, model=f"local/{name}", tier=CPU.name),
            generation=1,
            desired=Desired.RUNNING,
            created_at=THEN,
            updated_at=THEN,
            status=Status(),
        )

    def order(self, d: Deployment, slot: int = 0, render_hash: str = "0123456789") -> ReplicaOrder:
        return ReplicaOrder(
            deployment_id=d.id,
            name=d.name,
            slot=slot,
            render_hash=render_hash,
            tier=CPU,
            resolved=Resolved(method=Method.OFF, engine="0.32.0", template=1),
            model_path=self.model_path(d),
            draft_path=None,
            context_length=None,
            args={},
            devices=(SHARE,),
            engine_key="engine-key-of-the-test",
        )

    def seen(self, d: Deployment) -> tuple[ReplicaSeen, ...]:
        return self.driver.observe([d])[d.id].replicas

    def state(self, d: Deployment) -> ReplicaState | None:
        """Of its only replica; None when it has none."""
        seen = self.seen(d)
        assert len(seen) <= 1
        return seen[0].state if seen else None

    def up(self, d: Deployment) -> ReplicaSeen:
        """Starts one replica and waits until it answers."""
        self.driver.start(self.order(d), fence(d))
        until(lambda: self.state(d) is ReplicaState.ANSWERING)
        return self.seen(d)[0]


def fence(d: Deployment, token: int = 1) -> Fence:
    return Fence(d.id, token)


class DriverContract:
    """What `worker.drivers.base.Driver` promises, sentence by sentence."""

    def test_a_start_leads_to_one_engine_that_answers(self, world: World) -> None:
        d = world.deployment()
        seen = world.up(d)
        assert (seen.slot, seen.render_hash) == (0, "0123456789")
        assert seen.endpoint
        assert seen.started_at is not None
        assert world.processes(d) == 1

    def test_starting_what_runs_does_nothing(self, world: World) -> None:
        d = world.deployment()
        first = world.up(d)
        for _ in range(3):
            world.driver.start(world.order(d), fence(d))
        assert world.seen(d)[0].incarnation == first.incarnation
        assert world.processes(d) == 1

    def test_starting_twice_before_it_answers_gives_one_engine(self, world: World) -> None:
        d = world.deployment()
        world.driver.start(world.order(d), fence(d))
        world.driver.start(world.order(d), fence(d))
        until(lambda: world.state(d) is ReplicaState.ANSWERING)
        assert world.processes(d) == 1

    def test_a_slot_holds_one_hash_at_a_time(self, world: World) -> None:
        d = world.deployment()
        world.up(d)
        with pytest.raises(EffectRefused):
            world.driver.start(world.order(d, render_hash="9876543210"), fence(d))
        assert [s.render_hash for s in world.seen(d)] == ["0123456789"]
        assert world.processes(d) == 1

    def test_two_slots_run_side_by_side(self, world: World) -> None:
        d = world.deployment()
        world.driver.start(world.order(d, slot=0), fence(d))
        world.driver.start(world.order(d, slot=1), fence(d))
        until(lambda: [s.state for s in world.seen(d)] == [ReplicaState.ANSWERING] * 2)
        assert {s.slot for s in world.seen(d)} == {0, 1}
        assert len({s.endpoint for s in world.seen(d)}) == 2

    def test_an_engine_that_does_not_answer_yet_is_starting(self, world: World) -> None:
        d = world.deployment()
        world.hold_back(d)
        world.driver.start(world.order(d), fence(d))
        seen = until(lambda: world.seen(d))[0]
        assert seen.state is ReplicaState.STARTING
        assert seen.reason in {
            Reason.STARTING_ENGINE, Reason.LOADING_WEIGHTS, Reason.WARMING_UP
        }  # fmt: skip

    def test_an_engine_that_answered_and_stops_answering_is_silent(self, world: World) -> None:
        d = world.deployment()
        world.up(d)
        world.go_silent(d)
        until(lambda: world.state(d) is ReplicaState.SILENT)
        assert world.processes(d) == 1

    def test_an_engine_with_nothing_to_do_says_so_in_numbers(self, world: World) -> None:
        seen = world.up(world.deployment())
        assert (seen.running, seen.waiting) == (0, 0)

    @pytest.mark.parametrize("status", [0, 1])
    def test_an_engine_that_ends_by_itself_has_exited_whatever_its_status(
        self, world: World, status: int
    ) -> None:
        d = world.deployment()
        world.up(d)
        world.die(d, status)
        seen = until(lambda: [s for s in world.seen(d) if s.state is ReplicaState.EXITED])[0]
        assert seen.reason is Reason.ENGINE_DIED
        assert world.processes(d) == 0

    def test_an_exited_replica_stays_until_it_is_cleared_by_a_stop(self, world: World) -> None:
        d = world.deployment()
        world.up(d)
        world.die(d, 1)
        until(lambda: world.state(d) is ReplicaState.EXITED)
        assert world.state(d) is ReplicaState.EXITED
        world.driver.stop(d.id, 0, "0123456789", kill=False, fence=fence(d))
        assert world.seen(d) == ()

    def test_a_start_after_an_exit_is_a_new_life(self, world: World) -> None:
        d = world.deployment()
        first = world.up(d)
        world.die(d, 1)
        until(lambda: world.state(d) is ReplicaState.EXITED)
        second = world.up(d)
        assert second.incarnation != first.incarnation
        assert world.processes(d) == 1

    def test_a_replica_that_was_told_to_end_and_did_is_not_there(self, world: World) -> None:
        d = world.deployment()
        world.up(d)
        world.driver.stop(d.id, 0, "0123456789", kill=False, fence=fence(d))
        until(lambda: not world.seen(d))
        assert world.processes(d) == 0

    def test_a_replica_that_ignores_sigterm_is_stopping_until_it_is_killed(
        self, world: World
    ) -> None:
        d = world.deployment()
        world.ignore_term(d)
        world.up(d)
        for _ in range(2):
            world.driver.stop(d.id, 0, "0123456789", kill=False, fence=fence(d))
            assert world.state(d) is ReplicaState.STOPPING
        assert world.processes(d) == 1
        world.driver.stop(d.id, 0, "0123456789", kill=True, fence=fence(d))
        until(lambda: not world.seen(d))
        assert world.processes(d) == 0

    def test_a_start_while_it_stops_does_nothing(self, world: World) -> None:
        d = world.deployment()
        world.ignore_term(d)
        world.up(d)
        world.driver.stop(d.id, 0, "0123456789", kill=False, fence=fence(d))
        world.driver.start(world.order(d), fence(d))
        assert world.state(d) is ReplicaState.STOPPING
        assert world.processes(d) == 1

    @pytest.mark.parametrize("kill", [False, True])
    def test_stopping_what_is_not_there_is_no_error(self, world: World, kill: bool) -> None:
        d = world.deployment()
        world.driver.stop(d.id, 0, "0123456789", kill=kill, fence=fence(d))
        world.up(d)
        world.driver.stop(d.id, 7, "0123456789", kill=kill, fence=fence(d))
        world.driver.stop(d.id, 0, "9876543210", kill=kill, fence=fence(d))
        assert world.state(d) is ReplicaState.ANSWERING

    def test_a_deployment_that_has_nothing_is_seen_with_nothing(self, world: World) -> None:
        d = world.deployment()
        assert world.driver.observe([d])[d.id].replicas == ()
        assert world.driver.observe([]) == {}

    def test_one_look_tells_of_all_and_of_none_that_was_not_asked_for(self, world: World) -> None:
        a, b, c = (world.deployment(n) for n in ("aa", "bb", "cc"))
        for d in (a, b, c):
            world.driver.start(world.order(d), fence(d))
        found = world.driver.observe([a, c])
        assert set(found) == {a.id, c.id}

    def test_a_stale_fence_starts_nothing(self, world: World) -> None:
        d = world.deployment()
        world.up(d)
        world.driver.stop(d.id, 0, "0123456789", kill=True, fence=fence(d, token=5))
        until(lambda: not world.seen(d))
        with pytest.raises(StaleFence):
            world.driver.start(world.order(d), fence(d, token=4))
        assert world.processes(d) == 0

    def test_a_stale_fence_stops_and_forgets_nothing(self, world: World) -> None:
        d = world.deployment()
        world.driver.start(world.order(d), fence(d, token=5))
        until(lambda: world.state(d) is ReplicaState.ANSWERING)
        with pytest.raises(StaleFence):
            world.driver.stop(d.id, 0, "0123456789", kill=True, fence=fence(d, token=4))
        with pytest.raises(StaleFence):
            world.driver.forget(d.id, fence(d, token=4))
        assert world.state(d) is ReplicaState.ANSWERING

    def test_a_fence_holds_for_its_own_deployment_only(self, world: World) -> None:
        a, b = world.deployment("aa"), world.deployment("bb")
        world.driver.start(world.order(a), fence(a, token=9))
        world.driver.start(world.order(b), fence(b, token=1))
        until(lambda: world.state(b) is ReplicaState.ANSWERING)

    def test_the_next_worker_sees_the_same(self, world: World) -> None:
        d = world.deployment()
        before = world.up(d)
        world.driver = world.again()
        assert world.seen(d) == (before,)
        world.driver.start(world.order(d), fence(d, token=2))
        assert world.processes(d) == 1
        world.driver.stop(d.id, 0, "0123456789", kill=False, fence=fence(d, token=2))
        until(lambda: not world.seen(d))

    def test_the_next_worker_knows_who_had_answered_and_who_was_told_to_end(
        self, world: World
    ) -> None:
        a, b = world.deployment("aa"), world.deployment("bb")
        world.ignore_term(b)
        world.up(a)
        world.up(b)
        world.driver.stop(b.id, 0, "0123456789", kill=False, fence=fence(b))
        world.go_silent(a)
        world.driver = world.again()
        until(lambda: world.state(a) is ReplicaState.SILENT)
        assert world.state(b) is ReplicaState.STOPPING

    def test_what_is_owned_is_what_has_something_here(self, world: World) -> None:
        d = world.deployment()
        assert d.id not in world.driver.owned()
        world.up(d)
        assert d.id in world.driver.owned()
        world.driver.stop(d.id, 0, "0123456789", kill=True, fence=fence(d))
        until(lambda: not world.seen(d))
        world.driver.forget(d.id, fence(d))
        assert d.id not in world.driver.owned()

    def test_forgetting_what_lives_is_refused(self, world: World) -> None:
        d = world.deployment()
        world.up(d)
        with pytest.raises(DriverError):
            world.driver.forget(d.id, fence(d))
        assert world.state(d) is ReplicaState.ANSWERING

    def test_forgetting_what_is_not_there_is_no_error(self, world: World) -> None:
        d = world.deployment()
        world.driver.forget(d.id, fence(d))
        world.driver.forget(d.id, fence(d))
        assert d.id not in world.driver.owned()

    def test_an_observation_is_of_the_names_that_were_asked_for_even_when_they_change(
        self, world: World
    ) -> None:
        d = world.deployment()
        world.up(d)
        renamed = replace(d, spec=replace(d.spec, context_length=512), generation=2)
        assert world.state(renamed) is ReplicaState.ANSWERING
