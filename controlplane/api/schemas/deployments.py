"""A deployment as it travels, with what belongs to one."""

from __future__ import annotations

from dataclasses import asdict
from datetime import datetime
from typing import Any

from pydantic import BaseModel, Field

from controlplane.api.schemas.common import moment, moment_or_none
from controlplane.api.schemas.specs import Spec
from controlplane.domain.deployment import Method
from controlplane.domain.phases import Desired, Light, Phase
from controlplane.domain.reasons import Reason
from controlplane.services.views import View


class ReplicaCounts(BaseModel):
    wanted: int
    ready: int
    starting: int
    draining: int
    failed: int


class Progress(BaseModel):
    step: str
    fraction: float | None = Field(description="0 to 1; null where unknown.")
    eta_seconds: int | None


class Resolved(BaseModel):
    """What the machine chose; null where it has not chosen yet."""

    method: Method | None
    tokens: int | None
    heterogeneous: bool | None
    engine: str | None
    revision: str | None
    draft_revision: str | None
    template: int | None


class Status(BaseModel):
    phase: Phase
    light: Light
    reason: Reason | None
    message: str
    hint: str
    since: datetime | None
    replicas: ReplicaCounts
    progress: Progress | None
    resolved: Resolved


class Deployment(BaseModel):
    id: str = Field(examples=["dep_01JD0000000000000000000000"])
    name: str
    workspace: str
    spec: Spec
    generation: int = Field(description="Counts changes of the spec.")
    observed_generation: int = Field(description="The generation that the status speaks of.")
    desired: Desired
    status: Status
    last_active_at: datetime | None
    sleeps_at: datetime | None = Field(description="When its policy wants sleep, as things stand.")
    created_at: datetime
    updated_at: datetime


def deployment_json(view: View) -> dict[str, Any]:
    """`view` as a `Deployment`. A stored spec that no longer parses goes out as it is, so that
    one bad row hides no others."""
    status = view.status
    return {
        "id": view.id,
        "name": view.name,
        "workspace": view.workspace,
        "spec": dict(view.spec),
        "generation": view.generation,
        "observed_generation": status.observed_generation,
        "desired": view.desired,
        "status": {
            "phase": status.phase,
            "light": view.light,
            "reason": status.reason,
            "message": status.message,
            "hint": status.hint,
            "since": moment_or_none(status.since),
            "replicas": asdict(status.replicas),
            "progress": asdict(status.progress) if status.progress else None,
            "resolved": {k: getattr(status.resolved, k) for k in Resolved.model_fields},
        },
        "last_active_at": moment_or_none(status.last_active_at),
        "sleeps_at": moment_or_none(status.sleeps_at),
        "created_at": moment(view.created_at),
        "updated_at": moment(view.updated_at),
    }


class Event(BaseModel):
    """Something that happened; numbers grow."""

    number: int
    at: datetime
    kind: str
    phase: Phase | None
    reason: str | None
    message: str
    actor: str


class LogLine(BaseModel):
    source: str = Field(description="A replica, as `0-1f2e3d4c5b`, or `download`.")
    text: str


class EngineMetrics(BaseModel):
    """One replica's own numbers since its start; null where it did not tell."""

    replica: str
    route: str
    answered: bool
    running: int | None
    waiting: int | None
    prompt_tokens: int | None
    generation_tokens: int | None
    drafts: int | None
    draft_tokens: int | None
    accepted_tokens: int | None


class SpeculationMetrics(BaseModel):
    drafts: int
    draft_tokens: int
    accepted_tokens: int
    acceptance: float | None = Field(description="Accepted tokens of those drafted, 0 to 1.")
    mean_length: float | None = Field(description="Tokens a step: 1 + accepted / drafts.")


class DeploymentMetrics(BaseModel):
    """What is known now; null is unknown, never zero."""

    in_flight: int | None
    held: int | None
    last_active_at: datetime | None
    engines: list[EngineMetrics]
    speculation: SpeculationMetrics | None


class Command(BaseModel):
    """What one engine is run by. `<...>` stands for what is chosen at its start."""

    args: list[str] = Field(description="The program and its arguments.")
    env: dict[str, str]
    text: str = Field(description="The same, for a shell.")
    engine: str | None = Field(description="The engine's version.")


class Manifest(BaseModel):
    kind: str = Field(description="`command`: a process of this machine.")
    command: Command
