"""Looks that are due, and everything that must go on when the broker doesn't.

Due timers and a driver's own notices become hints; where the broker does not take one, a
small pool of this process does the work. When no sweep came for two periods, it sweeps.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Session, sessionmaker

from controlplane.persistence import timers
from controlplane.telemetry import logger

EVERY = 0.25  # seconds
AT_ONCE = 100
SWEEP_CHECK = 1.0  # seconds
AGAIN = 10.0  # seconds until a look that was told of and never began is told of again
_log = logger(__name__)


class Direct:
    """Work without the broker: a bounded pool that knows each thing once."""

    def __init__(self, work: Callable[[str], None], threads: int) -> None:
        self._work = work
        self._lock = threading.Lock()
        self._waiting: set[str] = set()
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="direct")

    def submit(self, key: str) -> None:
        """Do `key` soon. One that waits already is enough."""
        with self._lock:
            if key in self._waiting:
                return
            self._waiting.add(key)
        self._pool.submit(self._run, key)

    def close(self) -> None:
        """Returns when what runs has ended; what waits is left to the next sweep."""
        self._pool.shutdown(wait=True, cancel_futures=True)

    def _run(self, key: str) -> None:
        with self._lock:
            self._waiting.discard(key)
        self._work(key)


class Pacer:
    """A thread. `tell` takes a deployment's id and never raises; `is_late` says that a sweep
    is overdue and `sweep` begins one."""

    def __init__(
        self,
        sessions: sessionmaker[Session],
        tell: Callable[[str], None],
        is_late: Callable[[], bool],
        sweep: Callable[[], None],
    ) -> None:
        self._sessions, self._tell = sessions, tell
        self._is_late, self._sweep = is_late, sweep
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="pacer", daemon=True)
        self._checked = time.monotonic()

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._ended.wait(EVERY):
            try:
                self.turn()
            except SQLAlchemyError as e:
                _log.warning("database_failed", work="pacer", error=type(e).__name__)
            except Exception:  # noqa: BLE001 -- this thread is what everything else leans on
                _log.exception("pacer_failed")

    def turn(self) -> None:
        """Tell of what is due; now and then, see whether sweeps come."""
        with self._sessions.begin() as session:
            due = timers.take_due(session, most=AT_ONCE, again=AGAIN)
        for deployment_id in due:
            self._tell(deployment_id)
        if time.monotonic() - self._checked >= SWEEP_CHECK:
            self._checked = time.monotonic()
            if self._is_late():
                _log.info("sweeping_by_itself")
                self._sweep()
