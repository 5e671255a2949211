"""What a person asks for (`DeploymentSpec`) and what stands about it (`Deployment`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import NewType

from controlplane.domain.phases import Desired, Phase
from controlplane.domain.reasons import Reason

DeploymentId = NewType("DeploymentId", str)


class Method(StrEnum):
    """How tokens are drafted. `AUTO` follows from the draft's own config."""

    AUTO = "auto"
    DRAFT_MODEL = "draft_model"
    EAGLE3 = "eagle3"
    MTP = "mtp"
    NGRAM = "ngram"
    SUFFIX = "suffix"
    OFF = "off"


class Vocabulary(StrEnum):
    SAME = "same"
    HETEROGENEOUS = "heterogeneous"


class ScaleDownPolicy(StrEnum):
    NEVER = "never"
    IDLE = "idle"
    TIMER = "timer"


class WakeMode(StrEnum):
    HOLD = "hold"
    REJECT = "reject"


@dataclass(frozen=True, slots=True)
class Speculation:
    """`tokens` is how many are drafted a step, 1-16; None lets the machine choose."""

    method: Method = Method.AUTO
    tokens: int | None = None
    vocabulary: Vocabulary = Vocabulary.SAME
    workload: str | None = None


@dataclass(frozen=True, slots=True)
class ScaleDown:
    """`after` is None exactly when the policy is `never`."""

    policy: ScaleDownPolicy = ScaleDownPolicy.IDLE
    after: timedelta | None = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class Wake:
    """`deadline` counts from a request's arrival; `max_waiting` bounds held requests."""

    mode: WakeMode = WakeMode.HOLD
    deadline: timedelta = timedelta(minutes=15)
    max_waiting: int = 100


@dataclass(frozen=True, slots=True)
class Replicas:
    """How many run while awake."""

    min: int = 1
    max: int = 1


@dataclass(frozen=True, slots=True)
class EngineChoice:
    """A pinned engine version, and extra arguments from the allow-list in `engines`."""

    version: str | None = None
    args: Mapping[str, str | int | float | bool] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class DeploymentSpec:
    """One dedicated model, as desired. `model` and `draft_model` are in the normal form
    that `model_refs` makes; `context_length` is in tokens."""

    name: str
    model: str
    tier: str
    draft_model: str | None = None
    speculation: Speculation = Speculation()
    scale_down: ScaleDown = ScaleDown()
    wake: Wake = Wake()
    replicas: Replicas = Replicas()
    context_length: int | None = None
    revision: str | None = None
    hub_token: str | None = None
    engine: EngineChoice = EngineChoice()
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Resolved:
    """What the machine chose for a deployment. None: not chosen yet. `generation` is the one
    that it was chosen for; `revision` belongs to the model and branch that `revision_of`
    names, and stays with it whatever the branch does meanwhile."""

    method: Method | None = None
    tokens: int | None = None
    heterogeneous: bool | None = None
    engine: str | None = None
    revision: str | None = None
    draft_revision: str | None = None
    template: int | None = None
    generation: int | None = None
    revision_of: str | None = None


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a step is: `fraction` 0-1, `eta_seconds`; None where unknown."""

    step: str
    fraction: float | None = None
    eta_seconds: int | None = None


@dataclass(frozen=True, slots=True)
class ReplicaCounts:
    wanted: int = 0
    ready: int = 0
    starting: int = 0
    draining: int = 0
    failed: int = 0


@dataclass(frozen=True, slots=True)
class Status:
    """What is, by the reconciler's word.

    `after_drain` is the phase that a drain of all replicas leads to. `first_ready_at` is of
    the current spell awake: the idle clock starts there. `up_since` is when that spell's
    start began; the timer policy counts from it. `waiting_since` orders the queue for a slot.
    `attempts` counts starts that failed in a row, `retry_at` says when the next one may be;
    `given_up` is true once no more follow by themselves.
    """

    phase: Phase = Phase.QUEUED
    reason: Reason | None = None
    message: str = ""
    hint: str = ""
    since: datetime | None = None
    observed_generation: int = 0
    replicas: ReplicaCounts = ReplicaCounts()
    progress: Progress | None = None
    resolved: Resolved = Resolved()
    last_active_at: datetime | None = None
    sleeps_at: datetime | None = None
    first_ready_at: datetime | None = None
    up_since: datetime | None = None
    waiting_since: datetime | None = None
    attempts: int = 0
    given_up: bool = False
    retry_at: datetime | None = None
    handled_intent: int = 0
    after_drain: Phase | None = None


@dataclass(frozen=True, slots=True)
class Deployment:
    """A deployment as one value: the API's facts, and the reconciler's in `status`."""

    id: DeploymentId
    workspace: str
    name: str
    spec: DeploymentSpec
    generation: int
    desired: Desired
    created_at: datetime
    updated_at: datetime
    status: Status = Status()


class IntentKind(StrEnum):
    SLEEP = "sleep"
    WAKE = "wake"


@dataclass(frozen=True, slots=True)
class Intent:
    """A numbered wish for sleep or waking. The highest number wins; a wake expires.
    `asked_by` is a principal's name, `gateway:...` or `reconciler`."""

    number: int
    kind: IntentKind
    created_at: datetime
    expires_at: datetime | None = None
    reason: Reason | None = None
    asked_by: str = ""

    def alive(self, now: datetime) -> bool:
        return self.expires_at is None or now < self.expires_at


class RouteState(StrEnum):
    """Of one replica's route. `PLACED`: it has a slot, and nothing is sent to it yet."""

    PLACED = "placed"
    SERVING = "serving"
    DRAINING = "draining"


@dataclass(frozen=True, slots=True)
class Replica:
    """One vLLM server that the reconciler placed: its slot number in the deployment, what it
    renders, the devices it holds and how the gateway may use it. The row lives from
    placement until the process or pod was seen gone.

    `drain_epoch` is the epoch that every gateway must have shown before SIGTERM;
    `terminated_at` is when SIGTERM was sent.
    """

    deployment_id: DeploymentId
    slot: int
    render_hash: str
    generation: int
    devices: tuple[str, ...]
    placed_at: datetime
    route: RouteState = RouteState.PLACED
    endpoint: str | None = None
    drain_epoch: int | None = None
    drain_started_at: datetime | None = None
    terminated_at: datetime | None = None
