"""Noticing, soon, that an engine began to answer, came a step further, or ended.

Hints only: whoever is told looks for himself, and a sweep finds whatever was missed here.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass

from controlplane.domain.deployment import DeploymentId
from controlplane.domain.engine_failures import progress_of
from controlplane.domain.reasons import Reason
from controlplane.paths import DataDir
from controlplane.telemetry import logger
from worker.drivers.local.logs import text_of
from worker.drivers.local.probe import well
from worker.drivers.local.records import (
    Life,
    ReplicaFolder,
    owned_deployments,
    replica_folders,
)

EVERY = 0.3
PROGRESS_BYTES = 65_536
_log = logger(__name__)


@dataclass(slots=True)
class _Known:
    """What was last seen of one life."""

    alive: bool = True
    well: bool = False
    stage: Reason = Reason.STARTING_ENGINE
    log_size: int = -1


class Watcher:
    """A thread that calls `tell(deployment_id)`. While nothing runs it lists one folder three
    times a second; a starting engine costs one refused connection each time. An exception
    of `tell` is logged and ends nothing."""

    def __init__(
        self, data: DataDir, tell: Callable[[DeploymentId], None], every: float = EVERY
    ) -> None:
        self._data, self._tell, self._every = data, tell, every
        self._known: dict[str, _Known] = {}
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, name="engine-watch", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Returns when the thread has ended."""
        self._end.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._end.wait(self._every):
            try:
                self.look_once()
            except Exception as e:  # noqa: BLE001 (a hint less; the thread must go on)
                _log.warning("watch_failed", error=type(e).__name__)

    def look_once(self) -> None:
        """One look at everything, telling of what changed since the last one."""
        seen: dict[str, _Known] = {}
        for deployment_id in owned_deployments(self._data):
            lives = [
                (folder, life)
                for folder in replica_folders(self._data, deployment_id)
                if (life := folder.life()) is not None
            ]
            changed = [self._changed(folder, life, seen) for folder, life in lives]
            if any(changed):
                self._tell(deployment_id)
        self._known = seen

    def _changed(self, folder: ReplicaFolder, life: Life, seen: dict[str, _Known]) -> bool:
        known = seen[life.incarnation] = self._known.get(life.incarnation) or _Known()
        if not known.alive:
            return False
        if not life.main_lives():
            known.alive = False
            return True
        if known.well:
            return False
        if self._is_well(folder):
            known.well = True
            return True
        return self._moved(folder, life, known)

    def _is_well(self, folder: ReplicaFolder) -> bool:
        order = folder.order()
        return order is not None and well(order.port, timeout=self._every)

    def _moved(self, folder: ReplicaFolder, life: Life, known: _Known) -> bool:
        try:
            size = folder.log.stat().st_size
        except FileNotFoundError:
            return False
        if size == known.log_size:
            return False
        before = known.stage
        known.log_size = size
        known.stage = progress_of(text_of(folder, life, PROGRESS_BYTES))
        return known.stage is not before
