"""What a driver promises. One suite holds every driver to it (`tests/worker/drivers`)."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Protocol

from controlplane.domain.deployment import Deployment, DeploymentId, Resolved
from controlplane.domain.reasons import Reason
from controlplane.domain.tiers import Device, Tier


class WeightsState(StrEnum):
    ABSENT = "absent"
    FETCHING = "fetching"
    READY = "ready"
    FAILED = "failed"


class ReplicaState(StrEnum):
    """`STARTING`: its process lives and does not answer yet. `ANSWERING`: health is good and
    the served name is listed. `SILENT`: it answered before in this life and does not now.
    `STOPPING`: it was told to end. `EXITED`: it ended without being told to, whatever its
    exit status says. A replica that was told to end and did is not there any more."""

    STARTING = "starting"
    ANSWERING = "answering"
    SILENT = "silent"
    STOPPING = "stopping"
    EXITED = "exited"


class EngineState(StrEnum):
    READY = "ready"
    INSTALLING = "installing"
    MISSING = "missing"


@dataclass(frozen=True, slots=True)
class WeightsSeen:
    """One model's weights. `path` and `revision` (a commit, where there is one) once READY;
    `reason` and `detail` once FAILED; `fraction` (0-1) and `eta_seconds` while FETCHING.
    `heterogeneous` is true when the model's own folder says that it drafts for targets of
    other vocabularies. `attempt_at` is when a failed try ended; `retry_at` when the hub takes
    requests again, where it said so: no sense in trying before."""

    state: WeightsState
    path: str | None = None
    revision: str | None = None
    heterogeneous: bool = False
    fraction: float | None = None
    eta_seconds: int | None = None
    reason: Reason | None = None
    detail: str = ""
    attempt_at: datetime | None = None
    retry_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class EngineSeen:
    """The engine's own environment or image. `fraction` is 0-1 while it is installed."""

    state: EngineState
    version: str | None = None
    fraction: float | None = None
    detail: str = ""


@dataclass(frozen=True, slots=True)
class ReplicaSeen:
    """One replica as it is now. `incarnation` names this life of it (pid and start time, pod
    UID). `reason` is what its log or state tells: how far a start is, or why it ended.
    `running` and `waiting` are the engine's own request counts; None: could not be told."""

    slot: int
    render_hash: str
    state: ReplicaState
    incarnation: str
    endpoint: str | None = None
    started_at: datetime | None = None
    reason: Reason | None = None
    detail: str = ""
    running: int | None = None
    waiting: int | None = None


@dataclass(frozen=True, slots=True)
class Observation:
    """All that a driver can tell about one deployment."""

    engine: EngineSeen
    weights: Mapping[str, WeightsSeen] = field(default_factory=dict)
    replicas: tuple[ReplicaSeen, ...] = ()


@dataclass(frozen=True, slots=True)
class Fence:
    """The lease's token that an effect is done under. Effects of one deployment with an
    older token than the newest seen raise StaleFence and do nothing."""

    deployment_id: DeploymentId
    token: int


@dataclass(frozen=True, slots=True)
class WeightsOrder:
    """Weights to fetch. `revision` None: the hub's default branch."""

    model: str
    revision: str | None = None


@dataclass(frozen=True, slots=True)
class ReplicaOrder:
    """One replica to start: where, from what, as whom. The driver renders the command line
    with `domain.engines` from this, the weights' paths and the port that it chooses."""

    deployment_id: DeploymentId
    name: str
    slot: int
    render_hash: str
    tier: Tier
    resolved: Resolved
    model_path: str
    draft_path: str | None
    context_length: int | None
    args: Mapping[str, str | int | float | bool]
    devices: tuple[Device, ...]
    engine_key: str


class DriverError(Exception):
    """Something that a driver could not do. Subclasses say what it means for the caller."""


class Unreachable(DriverError):
    """Nothing could be told or done; no conclusion about any replica follows."""


class StaleFence(DriverError):
    """Somebody with a newer lease works on this deployment: stop, and do nothing more."""


class EffectRefused(DriverError):
    """The order can't be done, and the same order later can't either, until something
    changes. `reason` is what the deployment shows."""

    def __init__(self, reason: Reason, detail: str) -> None:
        super().__init__(detail)
        self.reason, self.detail = reason, detail


class Driver(Protocol):
    """Runs replicas somewhere. Every call has a deadline of its own, a few seconds, and may
    be repeated: an effect that is already there is no error and happens once."""

    def devices(self) -> Sequence[Device] | None:
        """What replicas may be placed on; None when a scheduler elsewhere decides that."""

    def observe(self, deployments: Collection[Deployment]) -> Mapping[DeploymentId, Observation]:
        """One bulk look. An id without an entry means: could not be told, never: is gone.
        Raises Unreachable when nothing at all could be told."""

    def fetch(self, order: WeightsOrder, fence: Fence) -> None:
        """Begin fetching weights, or let a fetch go on that runs already. Returns at once."""

    def start(self, order: ReplicaOrder, fence: Fence) -> None:
        """Begin one replica. If one of this slot and hash lives, nothing happens; if one of
        this slot and another hash lives, EffectRefused. Returns before it answers."""

    def stop(
        self, deployment_id: DeploymentId, slot: int, render_hash: str, *, kill: bool, fence: Fence
    ) -> None:
        """Tell one replica to end: SIGTERM, or SIGKILL to all of it with `kill`. Missing is no
        error. What an EXITED replica left behind (its record) is cleared by this as well."""

    def forget(self, deployment_id: DeploymentId, fence: Fence) -> None:
        """Remove every file or object of a deployment whose replicas are gone. Missing is no
        error; weights stay."""

    def owned(self) -> Collection[DeploymentId]:
        """Every deployment that has something here, with a row in the database or not."""
