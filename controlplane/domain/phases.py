"""Phases, their lights, and the only table that knows which step is legal."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType


class Phase(StrEnum):
    QUEUED = "queued"
    STARTING = "starting"
    READY = "ready"
    UPDATING = "updating"
    DEGRADED = "degraded"
    DRAINING = "draining"
    ASLEEP = "asleep"
    WAKING = "waking"
    PAUSED = "paused"
    FAILED = "failed"
    STOPPING = "stopping"
    DELETED = "deleted"


class Light(StrEnum):
    YELLOW = "yellow"
    GREEN = "green"
    ORANGE = "orange"
    GREY = "grey"
    RED = "red"
    NONE = "none"


class Desired(StrEnum):
    """What a person wants. Only the API writes it."""

    RUNNING = "running"
    PAUSED = "paused"
    DELETED = "deleted"


_TABLE: dict[Phase, tuple[Light, frozenset[Phase]]] = {
    Phase.QUEUED: (
        Light.YELLOW,
        frozenset({Phase.STARTING, Phase.ASLEEP, Phase.PAUSED, Phase.FAILED, Phase.STOPPING}),
    ),
    Phase.STARTING: (
        Light.YELLOW,
        frozenset({Phase.READY, Phase.DEGRADED, Phase.FAILED, Phase.DRAINING, Phase.STOPPING}),
    ),
    Phase.READY: (
        Light.GREEN,
        frozenset({Phase.UPDATING, Phase.DEGRADED, Phase.DRAINING, Phase.STOPPING}),
    ),
    Phase.UPDATING: (
        Light.YELLOW,
        frozenset({Phase.READY, Phase.DEGRADED, Phase.FAILED, Phase.DRAINING, Phase.STOPPING}),
    ),
    Phase.DEGRADED: (
        Light.ORANGE,
        frozenset({Phase.READY, Phase.UPDATING, Phase.FAILED, Phase.DRAINING, Phase.STOPPING}),
    ),
    Phase.DRAINING: (
        Light.YELLOW,
        frozenset(
            {
                Phase.ASLEEP,
                Phase.PAUSED,
                Phase.READY,
                Phase.DEGRADED,
                Phase.FAILED,
                Phase.STOPPING,
            }
        ),
    ),
    Phase.ASLEEP: (Light.GREY, frozenset({Phase.WAKING, Phase.PAUSED, Phase.STOPPING})),
    Phase.WAKING: (
        Light.YELLOW,
        frozenset({Phase.READY, Phase.DEGRADED, Phase.FAILED, Phase.DRAINING, Phase.STOPPING}),
    ),
    Phase.PAUSED: (Light.GREY, frozenset({Phase.QUEUED, Phase.STOPPING})),
    Phase.FAILED: (
        Light.RED,
        frozenset(
            {
                Phase.QUEUED,
                Phase.READY,
                Phase.DEGRADED,
                Phase.UPDATING,
                Phase.PAUSED,
                Phase.STOPPING,
            }
        ),
    ),
    Phase.STOPPING: (Light.YELLOW, frozenset({Phase.DELETED})),
    Phase.DELETED: (Light.NONE, frozenset()),
}

NEXT: Mapping[Phase, frozenset[Phase]] = MappingProxyType({p: row[1] for p, row in _TABLE.items()})
"""Where each phase may go."""

LIGHTS: Mapping[Phase, Light] = MappingProxyType({p: row[0] for p, row in _TABLE.items()})

RESTING = frozenset({Phase.ASLEEP, Phase.PAUSED, Phase.DELETED})
"""Phases in which nothing runs and nothing moves by itself."""


class IllegalStep(Exception):
    """A step that the table does not have: a fault in our code, never in a person's input."""


def advance(current: Phase, to: Phase) -> Phase:
    """The phase after a step from `current` to `to`; staying is always legal.

    Raises IllegalStep when the table has no such step.
    """
    if to is not current and to not in NEXT[current]:
        raise IllegalStep(f"{current} may not go to {to}")
    return to
