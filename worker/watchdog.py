"""Ends this process when a piece of work overruns its deadline.

A thread that hangs can't be stopped, and the threads pool knows no time limits. The process
can: its leases are given back at its next start, and engines are nobody's children.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from controlplane.telemetry import logger

EVERY = 0.5  # seconds
EXIT = 70  # software failure, by sysexits.h
_log = logger(__name__)


def _leave(work: str) -> None:
    _log.error("overrun", work=work)
    os._exit(EXIT)


class Watchdog:
    """`overrun` is called with the work's name once something took too long; by default it
    ends the process."""

    def __init__(self, overrun: Callable[[str], None] = _leave) -> None:
        self._overrun = overrun
        self._lock = threading.Lock()
        self._works: dict[int, tuple[str, float]] = {}
        self._number = 0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watchdog", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._ended.set()
        self._thread.join()

    @contextmanager
    def over(self, work: str, seconds: float) -> Iterator[None]:
        """The block must end within `seconds`."""
        with self._lock:
            self._number += 1
            number = self._number
            self._works[number] = (work, time.monotonic() + seconds)
        try:
            yield
        finally:
            with self._lock:
                del self._works[number]

    def _run(self) -> None:
        while not self._ended.wait(EVERY):
            now = time.monotonic()
            with self._lock:
                late = [work for work, until in self._works.values() if now > until]
            for work in late:
                self._overrun(work)
