"""What a plan says to do: values, not calls. `apply` turns them into effects and rows."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TypeAlias

from controlplane.domain.deployment import DeploymentId, Progress, Replica, Resolved, Status
from controlplane.domain.phases import Phase, advance
from controlplane.domain.reasons import EXPLANATIONS, Reason
from worker.drivers.base import WeightsOrder


@dataclass(frozen=True, slots=True)
class Place:
    """A new row: the claim on a slot number and its devices."""

    row: Replica


@dataclass(frozen=True, slots=True)
class Renew:
    """The row serves a newer generation that renders the same engine."""

    row: Replica
    generation: int


@dataclass(frozen=True, slots=True)
class Serve:
    """Its route goes on, under a new epoch."""

    row: Replica
    endpoint: str | None


@dataclass(frozen=True, slots=True)
class Unserve:
    """Its route goes off because nothing answers there; the claim stays."""

    row: Replica


@dataclass(frozen=True, slots=True)
class Drain:
    """Its route drains, under a new epoch that every gateway has to show."""

    row: Replica


@dataclass(frozen=True, slots=True)
class Release:
    """The row goes: nothing runs there any more."""

    row: Replica


@dataclass(frozen=True, slots=True)
class MakeRoom:
    """Another deployment is asked to sleep, so that this one finds a slot."""

    victim: DeploymentId
    name: str


@dataclass(frozen=True, slots=True)
class FetchWeights:
    order: WeightsOrder


@dataclass(frozen=True, slots=True)
class Start:
    """Begin the engine of a placed row."""

    row: Replica
    resolved: Resolved
    model_path: str
    draft_path: str | None


@dataclass(frozen=True, slots=True)
class Terminate:
    """SIGTERM; the row says since when. From then on there is no way back."""

    row: Replica


@dataclass(frozen=True, slots=True)
class Kill:
    row: Replica


@dataclass(frozen=True, slots=True)
class Clear:
    """Remove what a replica left behind that ended by itself; the claim stays."""

    row: Replica


@dataclass(frozen=True, slots=True)
class StopStray:
    """SIGTERM to a replica that no row knows; it gets a row that only waits for its end."""

    row: Replica


@dataclass(frozen=True, slots=True)
class Forget:
    """Remove every file or object of the deployment."""


Action: TypeAlias = (
    Place | Renew | Serve | Unserve | Drain | Release | MakeRoom | FetchWeights | Start
    | Terminate | Kill | Clear | StopStray | Forget
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Step:
    """What the status becomes and what is to be done. `trail` are the phases gone through, in
    order; `again_in` is in seconds; None: the next sweep or hint is soon enough."""

    status: Status
    actions: tuple[Action, ...] = ()
    again_in: float | None = None
    trail: tuple[Phase, ...] = ()


@dataclass(slots=True)
class Sketch:
    """A step in the making."""

    status: Status
    now: datetime
    actions: list[Action] = field(default_factory=list)
    again_in: float | None = None
    trail: list[Phase] = field(default_factory=list)

    def do(self, *actions: Action) -> None:
        self.actions.extend(actions)

    def soon(self, seconds: float) -> None:
        """Look again after `seconds`, or sooner if that was said already."""
        seconds = max(seconds, 0.0)
        self.again_in = seconds if self.again_in is None else min(self.again_in, seconds)

    def set(self, **changes: object) -> None:
        self.status = replace(self.status, **changes)  # type: ignore[arg-type]

    def go(self, phase: Phase) -> None:
        """Advance; raises IllegalStep where the table has no such step."""
        if phase is not self.status.phase:
            self.set(phase=advance(self.status.phase, phase), since=self.now)
            self.trail.append(phase)

    def say(
        self,
        reason: Reason | None,
        message: str = "",
        hint: str | None = None,
        progress: Progress | None = None,
    ) -> None:
        """Why it is as it is: the reason's own words where no better ones are given."""
        words = EXPLANATIONS[reason] if reason else None
        self.set(
            reason=reason,
            message=message or (words.sentence if words else ""),
            hint=hint if hint is not None else (words.hint if words else ""),
            progress=progress,
        )

    def step(self) -> Step:
        return Step(self.status, tuple(self.actions), self.again_in, tuple(self.trail))
