"""A long job that at most one process does at a time, and that others can watch.

A job has a lock file, which tells workers apart, and a progress file (JSON), which tells
everybody else how far it is and, by pid and start time, whether its worker still lives.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import psutil

from controlplane.errors import AppError

# The start time of a process is computed from the boot time, which the clock's corrections
# move a little.
_SAME_START_SECONDS = 2.0
_LOOK_AGAIN_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a job is: 0 to 1, the step's short name, and a sentence."""

    fraction: float
    step: str
    message: str


@dataclass(frozen=True, slots=True)
class JobSeen:
    """A job as its files tell. `error` and `hint` are the last try's, if that failed."""

    progress: Progress
    running: bool
    error: str = ""
    hint: str = ""


OnProgress = Callable[[Progress], None]


def ignore(progress: Progress) -> None:
    """For callers that don't watch."""


class Job:
    """The job whose files are `path` with .lock and .json added."""

    def __init__(self, path: Path) -> None:
        self._lock = path.with_name(path.name + ".lock")
        self._file = path.with_name(path.name + ".json")

    def seen(self) -> JobSeen | None:
        """How far the job is, or how its last try ended; None when nothing was ever tried."""
        try:
            raw = json.loads(self._file.read_bytes())
            progress = Progress(float(raw["fraction"]), str(raw["step"]), str(raw["message"]))
            error, hint = str(raw.get("error", "")), str(raw.get("hint", ""))
            running = not raw.get("ended") and _lives(int(raw["pid"]), float(raw["started"]))
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return None
        return JobSeen(progress, running, error, hint)

    @contextmanager
    def work(self, on_progress: OnProgress = ignore) -> Iterator[OnProgress]:
        """Do the job under its lock; yields the function that reports progress.

        While another process does it, its progress is handed on and this waits; the caller
        then looks whether anything is left to do. An AppError is kept for `seen` and raised.
        """
        self._lock.parent.mkdir(parents=True, exist_ok=True)
        with self._lock.open("a") as lock:
            self._wait_for(lock, on_progress)
            report = _Reporter(self._file, on_progress)
            try:
                yield report
            except AppError as e:
                report.end(error=e.message, hint=e.hint)
                raise
            except BaseException:
                report.end(error="The work was interrupted.", hint="Start it again.")
                raise
            report.end()

    def _wait_for(self, lock: IO[str], on_progress: OnProgress) -> None:
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                seen = self.seen()
                if seen and seen.running:
                    on_progress(seen.progress)
                time.sleep(_LOOK_AGAIN_SECONDS)
            else:
                return


class _Reporter:
    def __init__(self, file: Path, on_progress: OnProgress) -> None:
        self._file, self._on_progress = file, on_progress
        self._last: Progress | None = None

    def __call__(self, progress: Progress) -> None:
        if progress == self._last:
            return
        self._last = progress
        self._write({})
        self._on_progress(progress)

    def end(self, **outcome: str) -> None:
        if self._last is None and not outcome:
            return  # there was nothing to do, and what is known stays
        self._last = self._last or Progress(0.0, "start", "")
        self._write({"ended": True, **outcome})

    def _write(self, more: dict[str, object]) -> None:
        assert self._last is not None
        me = psutil.Process()
        record = {
            "fraction": round(self._last.fraction, 4),
            "step": self._last.step,
            "message": self._last.message,
            "pid": me.pid,
            "started": me.create_time(),
            **more,
        }
        new = self._file.with_name(self._file.name + ".new")
        try:
            new.write_text(json.dumps(record), encoding="utf-8")
            os.replace(new, self._file)
        except OSError:
            # Progress is for people to see; a full disk is told by the work itself.
            return


def _lives(pid: int, started: float) -> bool:
    try:
        process = psutil.Process(pid)
        return (
            abs(process.create_time() - started) < _SAME_START_SECONDS
            and process.status() != psutil.STATUS_ZOMBIE
        )
    except psutil.Error:
        return False
