"""Replicas as processes of this machine.

The folder of a replica says what was ordered, its lock whether something runs, /proc whether
it lives, and its own HTTP whether it serves. Nothing is kept in memory, so any worker, or the
next one, sees and does the same.
"""

from __future__ import annotations

import errno
import os
import secrets
import shutil
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from controlplane.domain.deployment import Deployment, DeploymentId
from controlplane.domain.reasons import Reason
from controlplane.domain.tiers import Device, DeviceKind, Tier, found_tiers, merge
from controlplane.errors import AppError, Unavailable
from controlplane.paths import DataDir
from controlplane.settings import Settings
from controlplane.telemetry import logger
from worker.drivers.base import (
    DriverError,
    EffectRefused,
    EngineSeen,
    EngineState,
    Fence,
    Observation,
    ReplicaOrder,
    ReplicaSeen,
    Unreachable,
    WeightsOrder,
    WeightsSeen,
)
from worker.drivers.local.ending import end
from worker.drivers.local.locks import POLL_SECONDS, fenced, slot_held
from worker.drivers.local.logs import rotate
from worker.drivers.local.look import look
from worker.drivers.local.records import (
    Life,
    ReplicaFolder,
    owned_deployments,
    replica_folders,
)
from worker.drivers.local.start import SLOT_SECONDS, Program, start

LOOKS_AT_ONCE = 16
OBSERVE_SECONDS = 4.0
_log = logger(__name__)


@dataclass(frozen=True, slots=True)
class FoundEngine:
    """What there is of an engine environment. `program` is set exactly when it is READY."""

    seen: EngineSeen
    program: Program | None = None


class Weights(Protocol):
    """This machine's weights: `worker.drivers.local.weights.LocalWeights`."""

    def observe(self, model: str, revision: str | None) -> WeightsSeen: ...

    def fetch(self, order: WeightsOrder) -> None: ...


Engines = Callable[[DeviceKind, str | None], FoundEngine]


class LocalDriver:
    """See `worker.drivers.base.Driver`. `engines` finds the environment of an engine for a
    kind of device and a version (None: the newest), `devices` tells this machine's, `ours` is
    this process's environment, of which an engine gets little."""

    def __init__(
        self,
        settings: Settings,
        *,
        weights: Weights,
        engines: Engines,
        devices: Callable[[], Sequence[Device]],
        ours: Mapping[str, str],
    ) -> None:
        self._settings, self._data = settings, DataDir(settings.data_dir)
        self._weights, self._engines, self._devices, self._ours = weights, engines, devices, ours
        self._pool = ThreadPoolExecutor(LOOKS_AT_ONCE, thread_name_prefix="look")

    def devices(self) -> Sequence[Device]:
        try:
            return self._devices()
        except Unavailable as e:
            raise Unreachable(e.message) from e

    def observe(self, deployments: Collection[Deployment]) -> Mapping[DeploymentId, Observation]:
        kinds = {t.name: t.device for t in self._catalogue()}
        looks = {d.id: self._begin_looks(d.id) for d in deployments}
        wait([f for found in looks.values() for f in found], timeout=OBSERVE_SECONDS)
        seen: dict[DeploymentId, Observation] = {}
        for d in deployments:
            try:
                seen[d.id] = Observation(
                    engine=self._engine_of(d, kinds.get(d.spec.tier)),
                    weights=self._weights_of(d),
                    replicas=_results(looks[d.id]),
                )
            except (DriverError, AppError, OSError, TimeoutError) as e:
                _log.warning("not_told", deployment=d.id, error=type(e).__name__)
        return seen

    def fetch(self, order: WeightsOrder, fence: Fence) -> None:
        with self._effect(fence):
            self._weights.fetch(order)

    def start(self, order: ReplicaOrder, fence: Fence) -> None:
        found = self._engines(order.tier.device, order.resolved.engine)
        if found.program is None:
            waits = found.seen.state is EngineState.INSTALLING
            reason = Reason.INSTALLING_ENGINE if waits else Reason.ENGINE_MISSING
            raise EffectRefused(reason, found.seen.detail)
        with self._effect(fence):
            start(self._data, order, found.program, self._ours)

    def stop(
        self, deployment_id: DeploymentId, slot: int, render_hash: str, *, kill: bool, fence: Fence
    ) -> None:
        if not self._data.deployment(deployment_id).exists():
            return
        with self._effect(fence):
            folder = ReplicaFolder(self._data.replica(deployment_id, slot, render_hash))
            if not folder.path.exists():
                return
            life = _life_or_none(folder)
            if life is None:
                folder.clear()
            else:
                end(folder, life, kill=kill)

    def forget(self, deployment_id: DeploymentId, fence: Fence) -> None:
        place = self._data.deployment(deployment_id)
        if place.exists():
            with self._effect(fence):
                _refuse_while_alive(self._data, deployment_id)
                # Away in one step, so that none finds half of it; then piece by piece.
                gone = self._data.replicas / f".gone-{deployment_id}-{secrets.token_hex(4)}"
                place.rename(gone)
        for left in self._data.replicas.glob(f".gone-{deployment_id}-*"):
            shutil.rmtree(left, ignore_errors=True)

    def owned(self) -> Collection[DeploymentId]:
        return owned_deployments(self._data)

    def _catalogue(self) -> Collection[Tier]:
        return merge(self._settings.tiers, found_tiers(self.devices())).values()

    def _begin_looks(self, deployment_id: DeploymentId) -> list[Future[ReplicaSeen | None]]:
        return [
            self._pool.submit(self._look, folder)
            for folder in replica_folders(self._data, deployment_id)
        ]

    def _look(self, folder: ReplicaFolder) -> ReplicaSeen | None:
        rotate(folder, self._settings.engines.log_bytes)
        return look(folder)

    def _engine_of(self, d: Deployment, kind: DeviceKind | None) -> EngineSeen:
        """The environment of the version that it runs on, or would."""
        if kind is None:
            return EngineSeen(
                EngineState.MISSING, detail=f'There is no tier "{d.spec.tier}" any more.'
            )
        return self._engines(kind, d.spec.engine.version or d.status.resolved.engine).seen

    def _weights_of(self, d: Deployment) -> dict[str, WeightsSeen]:
        seen = {d.spec.model: self._weights.observe(d.spec.model, d.spec.revision)}
        if d.spec.draft_model is not None:
            seen[d.spec.draft_model] = self._weights.observe(d.spec.draft_model, None)
        return seen

    @contextmanager
    def _effect(self, fence: Fence) -> Iterator[None]:
        """The fence, held; and what the file system can't do, said as a driver's word."""
        try:
            with fenced(self._data.deployment(fence.deployment_id), fence):
                yield
        except OSError as e:
            if e.errno in (errno.ENOSPC, errno.EDQUOT):
                raise EffectRefused(Reason.DISK_FULL, "The data directory's disk is full.") from e
            raise Unreachable(os.strerror(e.errno or 0)) from e


def _results(looks: Sequence[Future[ReplicaSeen | None]]) -> tuple[ReplicaSeen, ...]:
    """Raises what a look raised, or TimeoutError for one that is not done."""
    return tuple(seen for f in looks if (seen := f.result(timeout=0)) is not None)


def _life_or_none(folder: ReplicaFolder) -> Life | None:
    """The replica's life; a start that is under way by itself (its worker died) is waited
    for, because a stop that comes too early would let it live."""
    deadline = time.monotonic() + SLOT_SECONDS
    while (life := folder.life()) is None and slot_held(folder.path.parent, folder.slot):
        if time.monotonic() > deadline:
            raise Unreachable("a start is under way")
        time.sleep(POLL_SECONDS)
    return life


def _refuse_while_alive(data: DataDir, deployment_id: DeploymentId) -> None:
    place: Path = data.deployment(deployment_id)
    for folder in replica_folders(data, deployment_id):
        life = folder.life()
        if (life and life.members()) or slot_held(place, folder.slot):
            raise Unreachable("a replica of it lives still")
        folder.clear()
