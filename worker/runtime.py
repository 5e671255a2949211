"""One worker process, put together: what it is made of, and the order it starts and ends in."""

from __future__ import annotations

import os
from collections.abc import Mapping

from celery import Celery
from celery.beat import EmbeddedService, Scheduler
from sqlalchemy import Engine
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Session, sessionmaker

from controlplane.domain.deployment import DeploymentId
from controlplane.hints import Hints
from controlplane.persistence import leases, local_models, workers
from controlplane.persistence.session import make_engine, make_sessions
from controlplane.settings import Settings
from controlplane.telemetry import logger
from worker.app import make_app
from worker.drivers.choose import choose_driver, choose_watcher
from worker.identity import take_identity
from worker.pacer import Direct, Pacer
from worker.reconciler.loop import Reconciler
from worker.reconciler.sweep import Sweeper
from worker.watchdog import Watchdog

SWEEP = ""  # what the direct pool calls the sweep; no deployment has this id
_log = logger(__name__)


class Runtime:
    """Raises AppError when the settings or the data directory don't allow it."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._engine: Engine = make_engine(settings, "worker")
        self._sessions: sessionmaker[Session] = make_sessions(self._engine)
        driver = choose_driver(settings, self._registered)
        self._identity = take_identity(settings.data_dir)
        owner = self._identity.name
        self._hints, self._watchdog = Hints(settings), Watchdog()
        self._reconciler = Reconciler(settings, self._sessions, driver, owner, self._watchdog)
        self._sweeper = Sweeper(settings, self._sessions, driver, owner, self._watchdog, self._tell)
        self._direct = Direct(self._do, settings.reconcile.concurrency)
        self._pacer = Pacer(
            self._sessions, self._tell, self._sweeper.is_late, lambda: self._direct.submit(SWEEP)
        )
        self._watcher = choose_watcher(settings, self._tell)
        self.app: Celery = make_app(
            settings, reconcile=self._reconciler.reconcile, sweep=self._sweeper.sweep
        )

    def start(self) -> None:
        """Begin to work. What a former self left unfinished is taken up at once."""
        self._watchdog.start()
        self._give_back(started=True)
        self._pacer.start()
        if self._watcher is not None:
            self._watcher.start()
        self._direct.submit(SWEEP)
        if self._settings.stores.broker_url is not None:
            # Beat's own default keeps a file of its schedule in whatever folder this runs in.
            beat = EmbeddedService(self.app, thread=True, scheduler_cls=Scheduler)
            beat.start()  # type: ignore[union-attr]

    def stop(self) -> None:
        """Finish what runs, then give back what is held."""
        if self._watcher is not None:
            self._watcher.stop()
        self._pacer.stop()
        self._direct.close()
        self._give_back(started=False)
        self._hints.close()
        self._watchdog.stop()
        self._engine.dispose()
        os.close(self._identity.lock_fd)

    def _give_back(self, *, started: bool) -> None:
        owner = self._identity.name
        try:
            with self._sessions.begin() as session:
                leases.release_all(session, owner)
                if started:
                    workers.finished(session, owner, started=True)
                else:
                    workers.leave(session, owner)
        except SQLAlchemyError as e:
            _log.warning("leases_not_given_back", error=type(e).__name__)

    def _tell(self, deployment_id: DeploymentId | str) -> None:
        if not self._hints.send(deployment_id):
            self._direct.submit(deployment_id)

    def _do(self, key: str) -> None:
        if key == SWEEP:
            self._sweeper.sweep(at_once=True)
        else:
            self._reconciler.reconcile(key)

    def _registered(self) -> Mapping[str, str]:
        with self._sessions.begin() as session:
            return {m.name: m.path for m in local_models.listed(session)}
