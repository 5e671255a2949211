"""The guarantee behind all hints: a periodic look at everything, in bulk.

What would change gets a reconcile of its own, under its own lease; what would not costs
nothing more than the look.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Session, sessionmaker

from controlplane.domain.phases import Phase
from controlplane.persistence import activity, housekeeping, passes, status, timers, workers
from controlplane.settings import Settings
from controlplane.telemetry import DEPLOYMENTS, logger
from worker.drivers.base import Driver, DriverError, Unreachable
from worker.reconciler.garbage import Collector
from worker.reconciler.observe import Lookout, read
from worker.reconciler.plan import plan
from worker.watchdog import Watchdog

PASS = "sweep"  # noqa: S105 -- a pass through all deployments
GATEWAY_GONE = timedelta(minutes=1)
WORKER_GONE = timedelta(hours=1)
IDEMPOTENCY_KEPT = timedelta(days=1)
_log = logger(__name__)


class Sweeper:
    """`tell` asks for a reconcile of one deployment."""

    def __init__(
        self,
        settings: Settings,
        sessions: sessionmaker[Session],
        driver: Driver,
        owner: str,
        watchdog: Watchdog,
        tell: Callable[[str], None],
    ) -> None:
        self._settings, self._sessions, self._owner = settings, sessions, owner
        self._watchdog, self._tell = watchdog, tell
        self._lookout = Lookout(settings, driver)
        self._collector = Collector(driver, sessions)

    def sweep(self, *, at_once: bool = False) -> None:
        """One pass, unless another one ran just now. Never raises."""
        try:
            with self._watchdog.over("sweep", self._settings.reconcile.visibility_timeout / 2):
                if self._take() or at_once:
                    self._look_at_all()
                    self._tidy()
        except SQLAlchemyError as e:
            _log.warning("database_failed", work="sweep", error=type(e).__name__)
        except Exception:  # noqa: BLE001 -- the next pass comes all the same
            _log.exception("sweep_failed")

    def is_late(self) -> bool:
        """True when no sweep came for two periods: then sweep without being asked."""
        after = timedelta(seconds=2 * self._settings.reconcile.sweep_every)
        with self._sessions.begin() as session:
            return passes.is_late(session, PASS, after=after)

    def _take(self) -> bool:
        not_within = timedelta(seconds=0.6 * self._settings.reconcile.sweep_every)
        with self._sessions.begin() as session:
            return passes.take(session, PASS, self._owner, not_within=not_within)

    def _look_at_all(self) -> None:
        try:
            devices, told = self._lookout.devices(), True
        except Unreachable:
            devices, told = None, False
        with self._sessions.begin() as session:
            book = read(session)
        entries = list(book.entries.values())
        seen = self._lookout.observe(entries, devices) if told and entries else {}
        later: list[tuple[str, float]] = []
        for entry in entries:
            d = entry.deployment
            try:
                step = plan(self._lookout.facts(book, entry, seen.get(d.id), devices))
            except Exception:  # noqa: BLE001 -- one deployment's fault must not hide the others
                _log.exception("plan_failed", deployment=d.id)
                continue
            if step.status != d.status or step.actions:
                self._tell(d.id)
            elif step.again_in is not None:
                later.append((d.id, step.again_in))
        with self._sessions.begin() as session:
            for deployment_id, seconds in later:
                timers.schedule(session, deployment_id, seconds)

    def _tidy(self) -> None:
        with self._sessions.begin() as session:
            counts = status.phases(session)
            activity.prune(session, silent_for=GATEWAY_GONE)
            workers.prune(session, silent_for=WORKER_GONE)
            housekeeping.expire(session, idempotency=IDEMPOTENCY_KEPT)
            workers.finished(session, self._owner)
        for phase in Phase:
            if phase is not Phase.DELETED:
                DEPLOYMENTS.labels(phase=str(phase)).set(counts.get(phase, 0))
        try:
            self._collector.collect()
        except DriverError as e:
            _log.warning("not_collected", error=str(e))
