"""Fetches one model's weights, as a process of its own: `python -m worker.downloader`.

Its order comes as one JSON object on stdin, its token only in its environment, and what it
does stands in its folder (`controlplane.hub.attempts`). It outlives the worker that started
it, ends when done, and SIGTERM ends it at once: the next one goes on where it was.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from types import FrameType

import psutil

from controlplane.hub.attempts import Attempt, Child
from controlplane.hub.download import Hub, download
from controlplane.hub.failures import HubFailure
from controlplane.hub.progress import Progress
from controlplane.hub.session import use_our_session
from controlplane.telemetry import configure_logging, logger
from worker.download_order import BUSY, DONE, ENDED, FAILED, UNREADABLE, Order, read_order

LONGEST_ORDER = 65_536  # bytes
_log = logger(__name__)


def fill(order: Order, environ: Mapping[str, str]) -> int:
    """Fetch what `order` says, and leave the outcome in its folder. The exit status."""
    attempt = Attempt(order.folder)
    held = attempt.try_lock() if order.lock is None else None
    if held is None and order.lock is None:
        _log.info("somebody_else_fetches", model=order.model)
        return BUSY
    if held is not None:
        attempt.begin()  # otherwise whoever handed the lock on has done so
    attempt.introduce(Child(os.getpid(), psutil.Process().create_time()))
    hub = Hub(order.endpoint, environ.get("HF_TOKEN") or None)

    def report(progress: Progress) -> None:
        attempt.advance(progress, datetime.now(UTC))

    try:
        _log.info("fetching", model=order.model, revision=order.revision)
        snapshot = download(hub, order.cache, order.model, order.revision, report=report)
    except HubFailure as e:
        _log.error("fetch_failed", model=order.model, reason=str(e.reason), exc_info=e.__cause__)
        attempt.fail(e, datetime.now(UTC))
        return FAILED
    attempt.succeed(snapshot, datetime.now(UTC))
    _log.info("fetched", model=order.model, commit=snapshot.commit)
    return DONE


def main() -> int:
    configure_logging("downloader")
    logging.getLogger("httpx2").setLevel(logging.WARNING)  # addresses of stores are signed
    signal.signal(signal.SIGTERM, _end)
    signal.signal(signal.SIGINT, _end)
    try:
        order = read_order(sys.stdin.read(LONGEST_ORDER))
    except ValueError as e:
        sys.stderr.write(f"{e}\n")
        return UNREADABLE
    use_our_session()
    return fill(order, os.environ)


def _end(number: int, _frame: FrameType | None) -> None:
    """At once, without waiting for threads that wait for the network: what is on disk is
    whole files and parts that can be gone on with."""
    os.write(2, f'{{"event": "ended", "signal": {number}}}\n'.encode())
    os._exit(ENDED)


if __name__ == "__main__":
    sys.exit(main())
