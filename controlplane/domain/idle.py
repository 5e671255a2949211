"""When a deployment that is awake may go to sleep by its policy."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from controlplane.domain.deployment import ScaleDown, ScaleDownPolicy


@dataclass(frozen=True, slots=True)
class Activity:
    """What the gateways tell of one deployment, folded together by the reconciler.

    `in_flight` counts requests that are running or held. `last_byte_at` is the newest byte
    that any gateway passed on. `known` is false when no live gateway speaks, or the database
    came back less than 30 s ago: then nothing may be concluded.
    """

    known: bool = False
    in_flight: int = 0
    last_byte_at: datetime | None = None


def sleeps_at(
    policy: ScaleDown,
    *,
    first_ready_at: datetime | None,
    up_since: datetime | None,
    last_active_at: datetime | None,
    activity: Activity,
) -> datetime | None:
    """The moment from which the policy wants sleep, as things stand; None: not by itself.

    `idle` counts from the last activity, and never from before the first ready; a request in
    flight or held stops its clock, whatever its age. `timer` counts from the last start,
    whatever the traffic. No information never means idle.
    """
    if policy.after is None or first_ready_at is None:
        return None
    if policy.policy is ScaleDownPolicy.TIMER:
        return (up_since or first_ready_at) + policy.after
    if policy.policy is not ScaleDownPolicy.IDLE or not activity.known or activity.in_flight:
        return None
    moments = [first_ready_at, last_active_at, activity.last_byte_at]
    return max(m for m in moments if m) + policy.after
