"""Celery's Redis transport, with one fault mended: an entry of the queue that is no message
raises out of the event loop and would end the consumer. It is logged and dropped instead."""

from __future__ import annotations

from queue import Empty
from typing import Any

from kombu.transport import TRANSPORT_ALIASES, redis

from controlplane.telemetry import logger

_NO_MESSAGE = (ValueError, TypeError, LookupError, AttributeError)
_log = logger(__name__)


class Channel(redis.Channel):
    def _brpop_read(self, **options: Any) -> Any:
        try:
            return super()._brpop_read(**options)  # type: ignore[misc]
        except Empty:
            raise
        except _NO_MESSAGE as e:
            _log.warning("garbage_in_the_queue", error=type(e).__name__)
            raise Empty from e


class Transport(redis.Transport):
    Channel = Channel


def use_our_transport() -> None:
    """From now on, connections of this process to a Redis or Valkey go through it."""
    for scheme in ("redis", "rediss"):
        TRANSPORT_ALIASES[scheme] = f"{__name__}:Transport"
