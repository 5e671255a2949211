"""The Celery app: queue, rules, and the whole beat schedule."""

from __future__ import annotations

import logging
from collections.abc import Callable

import redis
from celery import Celery, signals

from controlplane.errors import Invalid
from controlplane.hints import QUEUE, SWEEP_TASK
from controlplane.settings import Settings
from controlplane.telemetry import logger
from worker.tasks import reconcile as reconcile_task
from worker.tasks import sweep as sweep_task

CHECK_SECONDS = 1.0
_log = logger(__name__)


def make_app(
    settings: Settings, *, reconcile: Callable[[str], None], sweep: Callable[[], None]
) -> Celery:
    """An app whose messages are hints: taken off the queue before the work (the sweep is the
    guarantee), JSON only, no results."""
    app = Celery("slipstream", broker=settings.stores.broker_url, set_as_current=False)
    every = settings.reconcile.sweep_every
    app.conf.update(
        task_default_queue=QUEUE,
        task_ignore_result=True,
        task_acks_late=False,
        task_serializer="json",
        accept_content=["json"],
        broker_connection_retry=True,
        broker_connection_retry_on_startup=True,
        broker_connection_max_retries=None,
        broker_transport_options={
            "visibility_timeout": settings.reconcile.visibility_timeout,
            "socket_connect_timeout": CHECK_SECONDS,
            "health_check_interval": 10,
        },
        worker_prefetch_multiplier=1,
        worker_enable_remote_control=False,
        worker_send_task_events=False,
        worker_hijack_root_logger=False,
        worker_redirect_stdouts=False,
        worker_cancel_long_running_tasks_on_connection_loss=False,
        beat_schedule={
            "sweep": {"task": SWEEP_TASK, "schedule": every, "options": {"expires": every}}
        },
    )
    reconcile_task.register(app, reconcile)
    sweep_task.register(app, sweep)
    return app


def keep_our_logging() -> None:
    """Celery would set up logging of its own as soon as nobody listens here."""
    signals.setup_logging.connect(_leave_logging, weak=False)
    for name in ("celery", "kombu"):  # a line for each hint would bury what matters
        logging.getLogger(name).setLevel(logging.WARNING)


def _leave_logging(**_: object) -> None:
    return


def check_broker(settings: Settings) -> None:
    """Raises Invalid when the broker would throw messages away as it likes. One that can't be
    asked is no fault: work goes on without it."""
    url = settings.stores.redis_url
    if url is None:
        _log.warning("no_broker")
        return
    client = redis.Redis.from_url(
        url, socket_timeout=CHECK_SECONDS, socket_connect_timeout=CHECK_SECONDS
    )
    try:
        policy = client.config_get("maxmemory-policy").get("maxmemory-policy")
    except (redis.RedisError, OSError) as e:
        _log.warning("broker_not_checked", error=type(e).__name__)
        return
    finally:
        client.close()
    if policy != "noeviction":
        raise Invalid(
            "broker_evicts",
            f"The broker's eviction policy is {policy}: it would drop queued work.",
            hint="Set maxmemory-policy to noeviction there.",
        )
