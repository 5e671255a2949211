"""Logging as data, and every metric's name, in one place.

Nothing here ever holds a prompt, an answer, a key or a token: lengths and names only. Values
of people are passed as fields, so that none can break a line's structure.
"""

from __future__ import annotations

import logging
import sys

import structlog
from prometheus_client import Counter, Gauge, Histogram

# They tell of every message, several lines each: worth reading only when they complain.
_TALKATIVE = ("celery.app.trace", "celery.worker.strategy", "celery.beat", "httpx2", "alembic")

LATENCY_BUCKETS = (0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30)
LONG_BUCKETS = (0.1, 0.3, 1, 3, 10, 30, 60, 120, 300, 600, 1800, 3600)

DEPLOYMENTS = Gauge("slipstream_deployments", "Deployments by phase", ["phase"])
RECONCILE_SECONDS = Histogram(
    "slipstream_reconcile_seconds", "One reconcile, claim to record", buckets=LATENCY_BUCKETS
)
PHASE_SECONDS = Histogram(
    "slipstream_phase_seconds", "How long a phase lasted", ["phase"], buckets=LONG_BUCKETS
)
GATEWAY_REQUESTS = Counter(
    "slipstream_gateway_requests", "Requests answered under /v1", ["deployment", "code"]
)
GATEWAY_IN_FLIGHT = Gauge(
    "slipstream_gateway_in_flight", "Requests that an engine works on", ["deployment"]
)
GATEWAY_WAITING = Gauge("slipstream_gateway_waiting", "Requests held", ["deployment"])
GATEWAY_OVERHEAD_SECONDS = Histogram(
    "slipstream_gateway_overhead_seconds",
    "Time that the gateway adds before an engine is asked",
    buckets=LATENCY_BUCKETS,
)
WAKE_SECONDS = Histogram(
    "slipstream_wake_seconds", "From a held request's arrival to its release", buckets=LONG_BUCKETS
)


def configure_logging(process: str, level: str = "INFO") -> None:
    """One JSON line an event on stderr, with the process's name; the standard library's
    loggers take the same way out."""
    shared: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_logger_name,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                _named(process),
                structlog.processors.format_exc_info,
                structlog.processors.JSONRenderer(),
            ],
        )
    )
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(level)
    for name in _TALKATIVE:
        logging.getLogger(name).setLevel(max(logging.WARNING, root.level))


def _named(process: str) -> structlog.typing.Processor:
    def add(
        _logger: object, _method: str, event: structlog.typing.EventDict
    ) -> structlog.typing.EventDict:
        event["process"] = process
        return event

    return add


def logger(name: str) -> structlog.stdlib.BoundLogger:
    """A logger whose `.info("what_happened", key=value)` becomes one JSON line."""
    bound: structlog.stdlib.BoundLogger = structlog.stdlib.get_logger(name)
    return bound
