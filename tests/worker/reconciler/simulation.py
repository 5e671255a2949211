"""A deployment's whole small world in memory: rows as the database keeps them, the fake
driver, a gateway that follows epochs, and a clock that only tests move."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

from controlplane.domain.deployment import (
    Deployment,
    DeploymentId,
    DeploymentSpec,
    Intent,
    IntentKind,
    Replica,
    RouteState,
    ScaleDown,
    Status,
)
from controlplane.domain.phases import NEXT, Desired, Phase
from controlplane.domain.reasons import Reason
from controlplane.domain.tiers import Device, DeviceKind, Tier
from tests.worker.reconciler.rows import apply_rows
from worker.drivers.base import EffectRefused, Fence, ReplicaState, Unreachable
from worker.drivers.fake import FakeDriver, FakeWorld
from worker.reconciler.apply import forget_first, perform
from worker.reconciler.facts import Facts, GatewaySaid, Limits, World, replica_key
from worker.reconciler.plan import plan, refused, untold_effect
from worker.reconciler.step import Step
from worker.reconciler.target import aim

T0 = datetime(2026, 12, 1, 12, 0, tzinfo=UTC)
CPU = Tier("cpu", DeviceKind.CPU, kv_cache_gib=1)
ID = DeploymentId("dep_1")
LIMITS = Limits(
    attempts=3,
    retry_first=timedelta(seconds=2),
    steady_after=timedelta(seconds=60),
    start_timeout=timedelta(seconds=600),
    stop_grace=timedelta(seconds=15),
    drain_limit=timedelta(seconds=300),
    minimum_uptime=timedelta(seconds=60),
)
SPEC = DeploymentSpec("hello", "local/target", "cpu", scale_down=ScaleDown())


def share(number: int) -> Device:
    return Device(f"cpu-{number}", DeviceKind.CPU, "Test CPU", 2**33, cores=(number,))


@dataclass
class Sim:
    """`gateway` None: no gateway lives. `taken` are devices that others hold."""

    spec: DeploymentSpec = SPEC
    devices: int = 1
    now: datetime = T0
    rows: list[Replica] = field(default_factory=list)
    taken: dict[str, str] = field(default_factory=dict)
    gateway: GatewaySaid | None = field(default_factory=lambda: GatewaySaid(True, 1))
    silent_gateway: bool = False
    settled: bool = True
    intent: Intent | None = None
    epoch: int = 1
    trail: list[Phase] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    spec_error: str = ""

    def __post_init__(self) -> None:
        self.world = FakeWorld(now=lambda: self.now)
        self.driver = FakeDriver(self.world)
        self.deployment = Deployment(
            ID, "default", "hello", self.spec, 1, Desired.RUNNING, T0, T0, Status(since=T0)
        )

    @property
    def status(self) -> Status:
        return self.deployment.status

    @property
    def phase(self) -> Phase:
        return self.status.phase

    def facts(self) -> Facts:
        try:
            seen = self.driver.observe([aim(self.deployment, CPU)])[ID]
        except Unreachable:
            seen = None
        devices = tuple(share(n) for n in range(self.devices))
        mine = {d: "hello" for r in self.rows for d in r.devices}
        gateways = [] if self.gateway is None else [self._follow(self.gateway)]
        if self.silent_gateway:
            gateways.append(GatewaySaid(False, 0))
        return Facts(
            deployment=self.deployment,
            tier=CPU,
            replicas=tuple(self.rows),
            seen=seen,
            gateways=tuple(gateways),
            settled=self.settled,
            intent=self.intent,
            world=World(devices=devices, taken={**self.taken, **mine}),
            now=self.now,
            limits=LIMITS,
            spec_error=self.spec_error,
        )

    def _follow(self, gateway: GatewaySaid) -> GatewaySaid:
        return replace(gateway, epoch=self.epoch)

    def step(self, seconds: float = 1.0) -> Step:
        """One look, all its rows and effects, and then `seconds` pass."""
        f = self.facts()
        step = plan(f)
        self.check(f, step)
        forget_first(self.driver, step, Fence(ID, 1))
        self.write(f, step)
        try:
            perform(self.driver, f, step, Fence(ID, 1), "key", lambda: True)
        except EffectRefused as e:
            self.write(f, refused(f, self.status, e))
        except Unreachable:
            self.write(f, untold_effect(f, self.status))
        self.steps.append(step)
        self.now += timedelta(seconds=seconds)
        return step

    def check(self, f: Facts, step: Step) -> None:
        at = f.deployment.status.phase
        for phase in step.trail:
            assert phase in NEXT[at], f"{at} -> {phase}"
            at = phase
        assert at is step.status.phase

    def write(self, f: Facts, step: Step) -> None:
        self.deployment = replace(self.deployment, status=step.status)
        self.trail.extend(step.trail)
        self.rows, self.epoch = apply_rows(self.rows, self.epoch, step, f.now)

    def run(self, seconds: float = 30, every: float = 1.0) -> None:
        """Look as often as the plan asks, for so long."""
        until = self.now + timedelta(seconds=seconds)
        while self.now < until:
            step = self.step(0)
            wait = every if step.again_in is None else min(every, max(step.again_in, 0.05))
            self.now += timedelta(seconds=wait)

    def until(self, *phases: Phase, seconds: float = 3600) -> None:
        end = self.now + timedelta(seconds=seconds)
        while self.phase not in phases:
            assert self.now < end, f"{self.phase} {self.status}"
            self.run(1)

    def edit(self, **changes: object) -> None:
        self.deployment = replace(
            self.deployment,
            spec=replace(self.deployment.spec, **changes),  # type: ignore[arg-type]
            generation=self.deployment.generation + 1,
        )

    def desire(self, desired: Desired) -> None:
        self.deployment = replace(self.deployment, desired=desired)

    def ask(
        self,
        kind: IntentKind,
        by: str = "key:admin",
        reason: Reason | None = None,
        lasts: float | None = 60,
    ) -> None:
        number = self.intent.number + 1 if self.intent else 1
        expires = None if lasts is None else self.now + timedelta(seconds=lasts)
        self.intent = Intent(number, kind, self.now, expires, reason, by)

    def busy(self, count: int = 1, held: int = 0) -> None:
        """So many requests are in flight at each serving replica's route."""
        assert self.gateway is not None
        keys = {replica_key(r): count for r in self.rows if r.route is not RouteState.PLACED}
        self.gateway = replace(
            self.gateway,
            in_flight=count,
            held=held,
            last_byte_at=self.now,
            replicas={k: n for k, n in keys.items() if n},
        )

    def quiet(self) -> None:
        assert self.gateway is not None
        self.gateway = replace(
            self.gateway, in_flight=0, held=0, last_byte_at=self.now, replicas={}
        )

    @property
    def engines(self) -> int:
        return self.world.running(ID)

    @property
    def serving(self) -> list[Replica]:
        return [r for r in self.rows if r.route is RouteState.SERVING]

    def crash(self, reason: Reason = Reason.ENGINE_DIED) -> None:
        self.world.end(ID, reason)

    def state(self, state: ReplicaState) -> None:
        self.world.change(ID, state)
