"""The worker process: `python -m worker`. SIGTERM lets it finish what it works on."""

from __future__ import annotations

import signal
import sys
import threading
from types import FrameType

from prometheus_client import start_http_server

from controlplane.errors import AppError
from controlplane.settings import load_settings
from controlplane.telemetry import configure_logging, logger
from worker.app import check_broker, keep_our_logging
from worker.broker import use_our_transport
from worker.runtime import Runtime

_log = logger(__name__)


def main() -> int:
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _end)
    try:
        settings = load_settings()
        configure_logging("worker", settings.log_level)
        keep_our_logging()
        use_our_transport()
        check_broker(settings)
        _tell_metrics(settings.server.worker_metrics_port)
        runtime = Runtime(settings)
    except AppError as e:
        sys.stderr.write(f"{e.message} {e.hint}".strip() + "\n")
        return 1
    try:
        runtime.start()
        _log.info("worker_started")
        if settings.stores.broker_url is None:
            threading.Event().wait()
        else:
            _consume(runtime, settings.reconcile.concurrency)
    finally:
        runtime.stop()
        _log.info("worker_ended")
    return 0


def _consume(runtime: Runtime, threads: int) -> None:
    """Take messages until SIGTERM or SIGINT, however long the broker is away."""
    worker = runtime.app.Worker(
        pool="threads",
        concurrency=threads,
        without_gossip=True,
        without_mingle=True,
        without_heartbeat=True,
        quiet=True,
        loglevel="WARNING",
    )
    worker.start()


def _tell_metrics(port: int) -> None:
    """Serve this process's metrics. A port that is taken costs them, and nothing else."""
    if port:
        try:
            start_http_server(port, "127.0.0.1")
        except OSError as e:
            _log.warning("metrics_not_served", port=port, error=type(e).__name__)


def _end(_number: int, _frame: FrameType | None) -> None:
    """Until Celery's own handlers are there, and where there is no broker at all."""
    raise SystemExit(0)


if __name__ == "__main__":
    sys.exit(main())
