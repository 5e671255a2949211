"""Collects what lies at a driver without a row in the database.

Only after an hour without one, and never much at once: a restored backup must not delete
production.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta

from sqlalchemy.orm import Session, sessionmaker

from controlplane.domain.deployment import DeploymentId
from controlplane.persistence import activity, status
from controlplane.persistence.activity import Clock
from controlplane.telemetry import logger
from worker.drivers.base import Driver, DriverError, Fence
from worker.reconciler.observe import stranger

ROWLESS_FOR = timedelta(hours=1)
FEW = 10  # up to so many things in all, a tenth would be none
_ABOVE_ALL = 2**62  # no lease is on what has no row, so no worker can be ahead of us
_log = logger(__name__)


def may_collect(rowless: int, owned: int) -> int:
    """How many of `rowless` things may go at once when `owned` are there in all: a tenth of
    everything, or what there is where that is less than ten; more needs a person's word."""
    if owned < FEW:
        return rowless
    return rowless if rowless <= owned // 10 else 0


class Collector:
    """Remembers since when each thing had no row; a restart begins the hour anew."""

    def __init__(self, driver: Driver, sessions: sessionmaker[Session]) -> None:
        self._driver, self._sessions = driver, sessions
        self._rowless: Mapping[DeploymentId, datetime] = {}

    def collect(self) -> None:
        """Raises DriverError."""
        owned = set(self._driver.owned())
        if not owned:
            self._rowless = {}
            return
        with self._sessions.begin() as session:
            clock = activity.clock(session)
            gone = status.gone_before(session, owned, clock.now - ROWLESS_FOR)
        since = {DeploymentId(i): self._rowless.get(DeploymentId(i), clock.now) for i in gone}
        self._rowless = since
        due = [i for i, at in since.items() if clock.now - at >= ROWLESS_FOR]
        if not due:
            return
        if may_collect(len(due), len(owned)) < len(due):
            _log.error("too_much_to_collect", rowless=len(due), owned=len(owned))
            return
        for deployment_id in due:
            self._remove(deployment_id, clock)

    def _remove(self, deployment_id: DeploymentId, clock: Clock) -> None:
        fence = Fence(deployment_id, _ABOVE_ALL)
        try:
            seen = self._driver.observe([stranger(deployment_id, clock)]).get(deployment_id)
            for r in seen.replicas if seen else ():
                self._driver.stop(deployment_id, r.slot, r.render_hash, kill=True, fence=fence)
            self._driver.forget(deployment_id, fence)
            _log.info("collected", deployment=deployment_id)
        except DriverError as e:  # an engine needs a moment to end: the next pass goes on
            _log.warning("not_collected", deployment=deployment_id, error=str(e))
