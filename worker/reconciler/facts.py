"""What the plan is made from: one deployment's facts, read before it. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from controlplane.domain.deployment import Deployment, Intent, IntentKind, Replica
from controlplane.domain.idle import Activity
from controlplane.domain.phases import Phase
from controlplane.domain.placement import Holder, Waiter
from controlplane.domain.tiers import Device, Tier
from worker.drivers.base import Observation, ReplicaSeen

MACHINE = "reconciler"
_GATEWAY = "gateway:"


@dataclass(frozen=True, slots=True)
class Limits:
    """The settings that the plan goes by."""

    attempts: int = 5
    retry_first: timedelta = timedelta(seconds=2)
    retry_cap: timedelta = timedelta(seconds=300)
    steady_after: timedelta = timedelta(seconds=60)
    start_timeout: timedelta = timedelta(seconds=1800)
    stop_grace: timedelta = timedelta(seconds=15)
    drain_limit: timedelta = timedelta(seconds=300)
    minimum_uptime: timedelta = timedelta(seconds=60)

    def delay(self, attempts: int) -> timedelta:
        """How long to wait after the `attempts`-th failure in a row."""
        doubled: int = 1 << min(max(attempts - 1, 0), 20)
        return min(self.retry_cap, self.retry_first * doubled)


@dataclass(frozen=True, slots=True)
class GatewaySaid:
    """One gateway's last word, and what it says of this deployment. `live` is false for one
    that is silent: unknown, not gone. `replicas` maps `<slot>-<hash>` to requests in flight."""

    live: bool
    epoch: int
    in_flight: int = 0
    held: int = 0
    last_byte_at: datetime | None = None
    replicas: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class World:
    """The devices of this place, and who has or wants them. `devices` is None where a
    scheduler elsewhere places. `leaving` are devices that are being freed already."""

    devices: tuple[Device, ...] | None = None
    taken: Mapping[str, str] = field(default_factory=dict)
    leaving: frozenset[str] = frozenset()
    waiters: tuple[Waiter, ...] = ()
    holders: tuple[Holder, ...] = ()


@dataclass(frozen=True, slots=True)
class Facts:
    """`seen` is None when nothing could be told; `tier` is None when no tier has that name;
    `settled` is false for a while after the database came back; `spec_error` says why the
    stored spec can't be read (then `deployment.spec` holds a name and no more)."""

    deployment: Deployment
    tier: Tier | None
    replicas: tuple[Replica, ...]
    seen: Observation | None
    gateways: tuple[GatewaySaid, ...]
    settled: bool
    intent: Intent | None
    world: World
    now: datetime
    limits: Limits
    spec_error: str = ""

    def look(self, row: Replica) -> ReplicaSeen | None:
        """What was seen of a placed replica; None: it is not there."""
        replicas = self.seen.replicas if self.seen else ()
        key = (row.slot, row.render_hash)
        return next((s for s in replicas if (s.slot, s.render_hash) == key), None)

    @property
    def strays(self) -> tuple[ReplicaSeen, ...]:
        """Replicas that run without a row: nobody placed them."""
        rows = {(r.slot, r.render_hash) for r in self.replicas}
        replicas = self.seen.replicas if self.seen else ()
        return tuple(s for s in replicas if (s.slot, s.render_hash) not in rows)

    @property
    def nothing_left(self) -> bool:
        return not self.replicas and not (self.seen and self.seen.replicas)

    @property
    def edited(self) -> bool:
        return self.deployment.generation != self.deployment.status.observed_generation

    def asks_for(self, kind: IntentKind) -> bool:
        """True when the newest wish is of `kind`, still holds and was not handled."""
        i = self.intent
        handled = self.deployment.status.handled_intent
        return i is not None and i.kind is kind and i.number > handled and i.alive(self.now)

    @property
    def asked_by_person(self) -> bool:
        i = self.intent
        return i is not None and not i.asked_by.startswith((_GATEWAY, MACHINE))

    @property
    def woken_by_person(self) -> bool:
        return self.asks_for(IntentKind.WAKE) and self.asked_by_person

    @property
    def begins_anew(self) -> bool:
        """True at the first look after an edit or a person's wake: what failed before it counts
        no more, seen or not."""
        return self.edited or self.woken_by_person

    @property
    def waking(self) -> bool:
        """True while somebody waits for it: such a one may make others sleep."""
        i = self.intent
        wished = i is not None and i.kind is IntentKind.WAKE and i.alive(self.now)
        return wished or self.deployment.status.phase is Phase.WAKING


def activity(gateways: tuple[GatewaySaid, ...], *, settled: bool) -> Activity:
    """What all gateways tell together. One silent gateway is enough to know nothing."""
    moments = [g.last_byte_at for g in gateways if g.last_byte_at]
    return Activity(
        known=settled and bool(gateways) and all(g.live for g in gateways),
        in_flight=sum(g.in_flight + g.held for g in gateways),
        last_byte_at=max(moments, default=None),
    )


def replica_key(row: Replica) -> str:
    """How gateways name a replica in their heartbeats."""
    return f"{row.slot}-{row.render_hash}"
