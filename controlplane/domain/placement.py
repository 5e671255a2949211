"""Which device a replica gets on this machine, who waits behind whom, and who makes room."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from controlplane.domain.deployment import DeploymentId, ScaleDownPolicy
from controlplane.domain.tiers import Device, Tier, serves


@dataclass(frozen=True, slots=True)
class Waiter:
    """A deployment that waits for devices. Wakes go before first starts."""

    id: DeploymentId
    name: str
    tier: Tier
    since: datetime
    waking: bool = False


@dataclass(frozen=True, slots=True)
class Placed:
    devices: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Waits:
    """No room now: how many devices lack, who holds them, and who is served before."""

    lacking: int
    held_by: tuple[str, ...]
    behind: tuple[str, ...]


def place(
    tier: Tier,
    me: Waiter,
    devices: Sequence[Device],
    taken: Mapping[str, str],
    waiters: Iterable[Waiter],
) -> Placed | Waits:
    """Devices for one replica of `tier`, or what it waits for.

    `taken` maps a device's id to the name of the deployment that holds it. Nobody overtakes
    an earlier waiter for the same kind of device, so a large one is not starved.
    """
    fit = [d for d in devices if serves(d, tier)]
    free = [d.id for d in fit if d.id not in taken]
    ahead = [
        w
        for w in sorted(waiters, key=_turn)
        if w.id != me.id and _turn(w) < _turn(me) and any(serves(d, w.tier) for d in fit)
    ]
    spoken_for = sum(w.tier.count for w in ahead)
    if len(free) - spoken_for >= tier.count:
        return Placed(tuple(free[: tier.count]))
    return Waits(
        lacking=max(tier.count - len(free), 0),
        held_by=tuple(sorted({taken[d.id] for d in fit if d.id in taken})),
        behind=tuple(w.name for w in ahead),
    )


def _turn(w: Waiter) -> tuple[bool, datetime, str]:
    return (not w.waking, w.since, w.id)


@dataclass(frozen=True, slots=True)
class Holder:
    """A deployment that holds devices, as far as making room needs it. `settled` is true in
    ready or degraded with a known, empty activity."""

    id: DeploymentId
    name: str
    devices: tuple[str, ...]
    policy: ScaleDownPolicy
    settled: bool
    ready_since: datetime | None
    last_active_at: datetime | None


def make_room(
    tier: Tier,
    devices: Sequence[Device],
    taken: Collection[str],
    holders: Iterable[Holder],
    *,
    now: datetime,
    minimum_uptime: timedelta,
) -> tuple[Holder, ...]:
    """Who goes to sleep so that a wake on `tier` finds room: the longest idle first, and no
    more than needed. Empty when even all who may go would not make enough room.

    Only who is settled, has been up for `minimum_uptime` (so that two can't take turns
    thrashing) and whose policy isn't `never` may go.
    """
    fit = {d.id for d in devices if serves(d, tier)}
    lacking = tier.count - len(fit - set(taken))
    chosen: list[Holder] = []
    for h in sorted(holders, key=lambda h: h.last_active_at or h.ready_since or now):
        gain = len(fit.intersection(h.devices))
        if lacking <= 0 or not gain or not _may_go(h, now, minimum_uptime):
            continue
        chosen.append(h)
        lacking -= gain
    return tuple(chosen) if lacking <= 0 else ()


def _may_go(h: Holder, now: datetime, minimum_uptime: timedelta) -> bool:
    return (
        h.settled
        and h.policy is not ScaleDownPolicy.NEVER
        and h.ready_since is not None
        and now - h.ready_since >= minimum_uptime
    )


def next_to_go(
    holders: Iterable[Holder], *, now: datetime, minimum_uptime: timedelta
) -> tuple[str, timedelta] | None:
    """Who may make room next, and in how long, where time alone stands in the way; None when
    it is something else."""
    waits = [
        (h.ready_since + minimum_uptime - now, h.name)
        for h in holders
        if h.ready_since and h.settled and h.policy is not ScaleDownPolicy.NEVER
    ]
    waits = [(left, name) for left, name in waits if left > timedelta()]
    if not waits:
        return None
    left, name = min(waits)
    return name, left
