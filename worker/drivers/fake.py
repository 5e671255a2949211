"""A driver without engines: a world in memory that tests steer, held to the same suite as the
real ones. `SLIPSTREAM_DRIVER=fake` runs the whole system on it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from controlplane.domain.deployment import Deployment, DeploymentId
from controlplane.domain.reasons import Reason
from controlplane.domain.tiers import Device
from worker.drivers.base import (
    EffectRefused,
    EngineSeen,
    EngineState,
    Fence,
    Observation,
    ReplicaOrder,
    ReplicaSeen,
    ReplicaState,
    StaleFence,
    Unreachable,
    WeightsOrder,
    WeightsSeen,
    WeightsState,
)

_LIVES = frozenset(
    {ReplicaState.STARTING, ReplicaState.ANSWERING, ReplicaState.SILENT, ReplicaState.STOPPING}
)
_ENGINE = EngineSeen(EngineState.READY, "0.32.0")
Key = tuple[DeploymentId, int, str]


@dataclass(slots=True)
class FakeWorld:
    """What the fake driver finds, and how engines behave, by deployment or for all.

    Engines answer at the first look after their start, unless held back. Weights that
    nothing is said about are there, unless `hub_is_empty`. `log` names every effect that was
    really done, in order.
    """

    devices: tuple[Device, ...] | None = None
    engine: EngineSeen = _ENGINE
    weights: dict[str, WeightsSeen] = field(default_factory=dict)
    hub_is_empty: bool = False
    unreachable: bool = False
    held_back: set[DeploymentId] = field(default_factory=set)
    ignores_term: set[DeploymentId] = field(default_factory=set)
    refuses: dict[DeploymentId, EffectRefused] = field(default_factory=dict)
    replicas: dict[Key, ReplicaSeen] = field(default_factory=dict)
    places: set[DeploymentId] = field(default_factory=set)
    fences: dict[DeploymentId, int] = field(default_factory=dict)
    log: list[tuple[str, DeploymentId]] = field(default_factory=list)
    lives: int = 0
    now: Callable[[], datetime] = field(default=lambda: datetime.now(UTC))
    lock: threading.RLock = field(default_factory=threading.RLock)

    def of(self, deployment_id: DeploymentId) -> list[Key]:
        return sorted(k for k in self.replicas if k[0] == deployment_id)

    def running(self, deployment_id: DeploymentId | None = None) -> int:
        """How many engines live, of one deployment or of all."""
        with self.lock:
            return sum(
                s.state in _LIVES for k, s in self.replicas.items() if deployment_id in (None, k[0])
            )

    def change(self, deployment_id: DeploymentId, state: ReplicaState, **more: object) -> None:
        """Put every replica of a deployment that lives into `state`."""
        with self.lock:
            for key in self.of(deployment_id):
                seen = self.replicas[key]
                if seen.state in _LIVES:
                    self.replicas[key] = replace(seen, state=state, **more)  # type: ignore[arg-type]

    def end(self, deployment_id: DeploymentId, reason: Reason = Reason.ENGINE_DIED) -> None:
        """Its engines end by themselves."""
        self.change(deployment_id, ReplicaState.EXITED, reason=reason, running=None, waiting=None)

    def vanish(self, deployment_id: DeploymentId) -> None:
        """Its engines were stopped on purpose by somebody else."""
        with self.lock:
            for key in self.of(deployment_id):
                del self.replicas[key]


class FakeDriver:
    """See `worker.drivers.base.Driver`. Knows nothing that its world doesn't."""

    def __init__(self, world: FakeWorld) -> None:
        self.world = world

    def devices(self) -> Sequence[Device] | None:
        self._reach()
        return self.world.devices

    def observe(self, deployments: Collection[Deployment]) -> Mapping[DeploymentId, Observation]:
        self._reach()
        with self.world.lock:
            return {d.id: self._look(d) for d in deployments}

    def fetch(self, order: WeightsOrder, fence: Fence) -> None:
        with self.world.lock:
            self._pass(fence)
            seen = self.world.weights.get(order.model)
            if seen is None or seen.state is not WeightsState.READY:
                self.world.weights[order.model] = WeightsSeen(WeightsState.FETCHING, fraction=0.0)
                self.world.log.append(("fetch", fence.deployment_id))

    def start(self, order: ReplicaOrder, fence: Fence) -> None:
        w = self.world
        with w.lock:
            self._pass(fence)
            if order.deployment_id in w.refuses:
                raise w.refuses[order.deployment_id]
            for _, slot, render_hash in w.of(order.deployment_id):
                alive = w.replicas[order.deployment_id, slot, render_hash].state in _LIVES
                if slot == order.slot and alive:
                    if render_hash == order.render_hash:
                        return
                    raise EffectRefused(Reason.WAITING_FOR_GPU, f"Slot {slot} is held.")
            w.lives += 1
            w.places.add(order.deployment_id)
            w.replicas[order.deployment_id, order.slot, order.render_hash] = ReplicaSeen(
                order.slot,
                order.render_hash,
                ReplicaState.STARTING,
                incarnation=f"life-{w.lives}",
                endpoint=f"http://127.0.0.1:{10_000 + w.lives}",
                started_at=w.now(),
                reason=Reason.STARTING_ENGINE,
            )
            w.log.append(("start", order.deployment_id))

    def stop(
        self, deployment_id: DeploymentId, slot: int, render_hash: str, *, kill: bool, fence: Fence
    ) -> None:
        w, key = self.world, (deployment_id, slot, render_hash)
        with w.lock:
            self._pass(fence)
            seen = w.replicas.get(key)
            if seen is None:
                return
            if seen.state in _LIVES and not kill and deployment_id in w.ignores_term:
                w.replicas[key] = replace(seen, state=ReplicaState.STOPPING)
                return
            del w.replicas[key]
            w.log.append(("stop", deployment_id))

    def forget(self, deployment_id: DeploymentId, fence: Fence) -> None:
        with self.world.lock:
            self._pass(fence)
            if self.world.running(deployment_id):
                raise Unreachable("a replica of it lives still")
            self.world.vanish(deployment_id)
            self.world.places.discard(deployment_id)
            self.world.fences.pop(deployment_id, None)

    def owned(self) -> Collection[DeploymentId]:
        self._reach()
        return frozenset(self.world.places)

    def _reach(self) -> None:
        if self.world.unreachable:
            raise Unreachable("the fake world is cut off")

    def _pass(self, fence: Fence) -> None:
        self._reach()
        if fence.token < self.world.fences.get(fence.deployment_id, 0):
            raise StaleFence(f"{fence.deployment_id}: {fence.token}")
        self.world.fences[fence.deployment_id] = fence.token

    def _look(self, d: Deployment) -> Observation:
        w = self.world
        for key in w.of(d.id):
            seen = w.replicas[key]
            if seen.state is ReplicaState.STARTING and d.id not in w.held_back:
                w.replicas[key] = replace(
                    seen, state=ReplicaState.ANSWERING, reason=None, running=0, waiting=0
                )
        models = [m for m in (d.spec.model, d.spec.draft_model) if m]
        return Observation(
            engine=w.engine,
            weights={m: self._weights(m) for m in models},
            replicas=tuple(w.replicas[k] for k in w.of(d.id)),
        )

    def _weights(self, model: str) -> WeightsSeen:
        if self.world.hub_is_empty:
            there = WeightsSeen(WeightsState.ABSENT)
        else:
            there = WeightsSeen(WeightsState.READY, path=f"/weights/{model}")
        return self.world.weights.get(model, there)
