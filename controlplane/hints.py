"""\"Reconcile this soon\", by task name, after the commit.

A hint may be lost, doubled or late: the sweep is the guarantee. So nothing here raises, and
nothing waits for longer than a second.
"""

from __future__ import annotations

import threading
import time

from celery import Celery

from controlplane.settings import Settings
from controlplane.telemetry import logger

QUEUE = "slipstream"
RECONCILE_TASK, SWEEP_TASK = "slipstream.reconcile", "slipstream.sweep"
TIMEOUT = 1.0  # seconds a call to the broker may take
REST = 2.0  # seconds without a try after a failed one, so that a dead broker costs little
HOLDS = 60.0  # seconds after which a hint says nothing new
_log = logger(__name__)


class Hints:
    """One for each process. The connection is made at the first hint, and safe to share."""

    def __init__(self, settings: Settings) -> None:
        url = settings.stores.broker_url
        self._app = _producer(url) if url else None
        self._lock = threading.Lock()
        self._rests_until = 0.0

    def reconcile(self, deployment_id: str) -> None:
        """Ask for a look at a deployment. Never raises."""
        self.send(deployment_id)

    def send(self, deployment_id: str) -> bool:
        """As `reconcile`; False when the broker did not take it."""
        if self._app is None or time.monotonic() < self._rests_until:
            return False
        try:
            with self._lock:
                self._app.send_task(
                    RECONCILE_TASK,
                    args=[deployment_id],
                    queue=QUEUE,
                    expires=HOLDS,
                    retry=False,
                    ignore_result=True,
                )
        except Exception as e:  # noqa: BLE001 -- whatever a broker's client raises, a hint is lost
            self._rests_until = time.monotonic() + REST
            _log.warning("hint_lost", deployment=deployment_id, error=type(e).__name__)
            return False
        return True

    def close(self) -> None:
        if self._app is not None:
            self._app.close()


def _producer(url: str) -> Celery:
    app = Celery("slipstream-hints", broker=url, set_as_current=False)
    app.conf.update(
        broker_pool_limit=2,
        broker_connection_timeout=TIMEOUT,
        broker_connection_retry=False,
        broker_transport_options={
            "socket_timeout": TIMEOUT,
            "socket_connect_timeout": TIMEOUT,
            "max_retries": 1,
            "retry_on_timeout": False,
        },
        task_ignore_result=True,
        task_serializer="json",
        task_default_queue=QUEUE,
    )
    return app
