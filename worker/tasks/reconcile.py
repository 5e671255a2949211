"""The envelope of one reconcile."""

from __future__ import annotations

from collections.abc import Callable

from celery import Celery

from controlplane.hints import RECONCILE_TASK


def register(app: Celery, reconcile: Callable[[str], None]) -> None:
    @app.task(name=RECONCILE_TASK)
    def _reconcile(deployment_id: object) -> None:
        if isinstance(deployment_id, str) and len(deployment_id) <= 40:
            reconcile(deployment_id)
