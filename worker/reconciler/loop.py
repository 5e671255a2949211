"""One reconcile: claim, observe, plan, record, apply. Thin: what to do is `plan`'s word."""

from __future__ import annotations

import time
from datetime import timedelta

from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Session, sessionmaker

from controlplane.domain.deployment import DeploymentId
from controlplane.persistence import leases, timers, workers
from controlplane.settings import Settings
from controlplane.telemetry import RECONCILE_SECONDS, logger
from worker.drivers.base import Driver, EffectRefused, Fence, StaleFence, Unreachable
from worker.reconciler.apply import Outdated, forget_first, perform, record
from worker.reconciler.facts import Facts
from worker.reconciler.observe import Entry, Lookout, read
from worker.reconciler.plan import plan, refused, untold_effect
from worker.reconciler.step import Step
from worker.watchdog import Watchdog

BUSY_AGAIN = 0.25  # seconds until a look that found somebody else at work is repeated
OUTDATED_AGAIN = 0.05
STEPS = 5  # in a row under one lease, as long as each asks for the next at once
_log = logger(__name__)


class Reconciler:
    """Safe to share between threads. `owner` names this process among workers."""

    def __init__(
        self,
        settings: Settings,
        sessions: sessionmaker[Session],
        driver: Driver,
        owner: str,
        watchdog: Watchdog,
    ) -> None:
        self._settings, self._sessions, self._driver = settings, sessions, driver
        self.owner, self._watchdog = owner, watchdog
        self.lookout = Lookout(settings, driver)

    def reconcile(self, deployment_id: str) -> None:
        """Bring one deployment as far as it goes now. Never raises: what went wrong is
        logged, and the sweep comes again."""
        begun = time.monotonic()
        deadline = self._settings.reconcile.deadline
        try:
            with self._watchdog.over(f"reconcile {deployment_id}", deadline):
                token = self._claim(deployment_id)
                if token is not None:
                    self._work(Fence(DeploymentId(deployment_id), token), begun)
        except SQLAlchemyError as e:
            _log.warning("database_failed", deployment=deployment_id, error=type(e).__name__)
        except Exception:  # noqa: BLE001 -- one deployment's fault must not end the others'
            _log.exception("reconcile_failed", deployment=deployment_id)
        RECONCILE_SECONDS.observe(time.monotonic() - begun)

    def _claim(self, deployment_id: str) -> int | None:
        lasts = timedelta(seconds=self._settings.reconcile.lease)
        with self._sessions.begin() as session:
            token = leases.claim(session, deployment_id, self.owner, lasts)
            if token is None and leases.is_held(session, deployment_id):
                timers.schedule(session, deployment_id, BUSY_AGAIN)
        return token

    def _work(self, fence: Fence, begun: float) -> None:
        again: float | None = None
        try:
            for _ in range(STEPS):
                again = self._step(fence, begun)
                if again != 0 or self._late(begun):
                    break
        except Outdated:
            again = OUTDATED_AGAIN
        except StaleFence:
            again = BUSY_AGAIN
        finally:
            self._let_go(fence, again)

    def _late(self, begun: float) -> bool:
        """Half of the deadline is for what began in time to end in."""
        return time.monotonic() - begun > self._settings.reconcile.deadline / 2

    def _let_go(self, fence: Fence, again: float | None) -> None:
        with self._sessions.begin() as session:
            leases.release(session, fence.deployment_id, fence.token)
            if again is not None:
                timers.schedule(session, fence.deployment_id, again)
            workers.finished(session, self.owner)

    def _step(self, fence: Fence, begun: float) -> float | None:
        """One step; when to look again, in seconds."""
        found = self._facts(fence.deployment_id)
        if found is None:
            return None
        entry, f = found
        step = plan(f)
        try:
            forget_first(self._driver, step, fence)
        except Unreachable as e:
            self._note(f, untold_effect(f, f.deployment.status), fence.token, e)
            return None
        if step.status != f.deployment.status or step.actions:
            with self._sessions.begin() as session:
                record(session, f, step, fence.token)
        try:
            done = perform(
                self._driver, f, step, fence, entry.engine_key, lambda: not self._late(begun)
            )
        except EffectRefused as e:
            self._note(f, refused(f, step.status, e), fence.token, e)
            return 0
        except Unreachable as e:
            self._note(f, untold_effect(f, step.status), fence.token, e)
            return None
        return step.again_in if done else OUTDATED_AGAIN

    def _note(self, f: Facts, step: Step, token: int, e: Exception) -> None:
        _log.warning("effect_failed", deployment=f.deployment.id, error=str(e))
        with self._sessions.begin() as session:
            record(session, f, step, token)

    def _facts(self, deployment_id: DeploymentId) -> tuple[Entry, Facts] | None:
        try:
            devices = self.lookout.devices()
            told = True
        except Unreachable:
            devices, told = None, False
        with self._sessions.begin() as session:
            book = read(session, None if devices is not None else [deployment_id])
        entry = book.entries.get(deployment_id)
        if entry is None:
            return None
        seen = self.lookout.observe([entry], devices).get(deployment_id) if told else None
        return entry, self.lookout.facts(book, entry, seen, devices)
