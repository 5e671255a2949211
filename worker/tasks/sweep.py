"""The envelope of one sweep."""

from __future__ import annotations

from collections.abc import Callable

from celery import Celery

from controlplane.hints import SWEEP_TASK


def register(app: Celery, sweep: Callable[[], None]) -> None:
    @app.task(name=SWEEP_TASK)
    def _sweep() -> None:
        sweep()
