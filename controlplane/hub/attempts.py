"""One download as files: whether somebody works on it, how far it is, how it ended.

    lock            held by whoever fills this, for as long as that process lives
    child.json      which process that is
    progress.json   bytes done and in all
    outcome.json    how the last attempt ended, once it did
    download.log

Everything but the lock is written whole or not at all. An attempt that left no outcome was
interrupted, and may simply be begun again.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import BinaryIO

from controlplane.domain.reasons import Reason
from controlplane.hub.cache import Snapshot
from controlplane.hub.failures import HubFailure
from controlplane.hub.folder import read_json
from controlplane.hub.progress import Progress

LOCK_TRIES, LOCK_PAUSE = 5, 0.02  # seconds; a look holds the lock for microseconds
RESERVE = 65_536  # bytes kept on disk so that "the disk is full" can still be written


@dataclass(frozen=True, slots=True)
class Failed:
    """How an attempt ended without weights, and when."""

    reason: Reason
    detail: str
    at: datetime | None
    retry_at: datetime | None


@dataclass(frozen=True, slots=True)
class Child:
    """The process that fills; `started` is its start time as psutil tells it."""

    pid: int
    started: float


@dataclass(frozen=True, slots=True)
class Attempt:
    """The folder of one model's download at one revision."""

    folder: Path

    @property
    def log(self) -> Path:
        return self.folder / "download.log"

    def try_lock(self) -> BinaryIO | None:
        """The held lock, to be kept open by whoever works; None when somebody else does. It
        is inherited with the file and ends with the last process that has it."""
        self.folder.mkdir(parents=True, exist_ok=True)
        file = (self.folder / "lock").open("ab")
        for _ in range(LOCK_TRIES):
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                time.sleep(LOCK_PAUSE)  # perhaps somebody only looked
            else:
                return file
        file.close()
        return None

    def is_worked_on(self) -> bool:
        """True while a process fills this. Holds the lock, shared, for an instant."""
        try:
            with (self.folder / "lock").open("rb") as file:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except (FileNotFoundError, NotADirectoryError):
            return False
        except BlockingIOError:
            return True
        return False

    def forget(self) -> None:
        """From here on nothing is known of earlier attempts."""
        for name in ("outcome.json", "progress.json", "child.json"):
            (self.folder / name).unlink(missing_ok=True)

    def begin(self) -> None:
        """A new attempt, of which nothing is known yet."""
        self.forget()
        with suppress(OSError):
            (self.folder / "reserve").write_bytes(os.urandom(RESERVE))

    def introduce(self, child: Child) -> None:
        self._write("child.json", {"pid": child.pid, "started": child.started})

    def child(self) -> Child | None:
        found = read_json(self.folder / "child.json") or {}
        pid, started = found.get("pid"), found.get("started")
        if not isinstance(pid, int) or not isinstance(started, float):
            return None
        return Child(pid, started)

    def advance(self, progress: Progress, at: datetime) -> None:
        """Say how far it is. A disk too full for that is the download's matter, not this."""
        content = {
            "done_bytes": progress.done,
            "total_bytes": progress.total,
            "fraction": _fraction(progress),
            "eta_seconds": progress.eta_seconds,
            "at": at.isoformat(),
        }
        with suppress(OSError):
            self._write("progress.json", content)

    def progress(self) -> tuple[float | None, int | None]:
        """Fraction and seconds to the end, as last told."""
        found = read_json(self.folder / "progress.json") or {}
        fraction, eta = found.get("fraction"), found.get("eta_seconds")
        return (
            float(fraction) if isinstance(fraction, int | float) else None,
            eta if isinstance(eta, int) else None,
        )

    def succeed(self, snapshot: Snapshot, at: datetime) -> None:
        self._end(
            {
                "state": "ready",
                "path": str(snapshot.path),
                "revision": snapshot.commit,
                "at": at.isoformat(),
            }
        )

    def fail(self, failure: HubFailure, at: datetime) -> None:
        self._end(
            {
                "state": "failed",
                "reason": failure.reason,
                "detail": failure.message,
                "at": at.isoformat(),
                "retry_at": failure.retry_at.isoformat() if failure.retry_at else None,
            }
        )

    def failed(self) -> Failed | None:
        """How the last attempt failed; None when it did not, or was interrupted."""
        found = read_json(self.folder / "outcome.json") or {}
        if found.get("state") != "failed":
            return None
        try:
            reason = Reason(str(found.get("reason")))
        except ValueError:
            reason = Reason.DOWNLOAD_FAILED
        return Failed(
            reason, str(found.get("detail") or ""), _time(found, "at"), _time(found, "retry_at")
        )

    def _end(self, outcome: Mapping[str, object]) -> None:
        (self.folder / "reserve").unlink(missing_ok=True)
        self._write("outcome.json", outcome)

    def _write(self, name: str, content: Mapping[str, object]) -> None:
        new = self.folder / f"{name}.new"
        new.write_text(json.dumps(content), encoding="utf-8")
        os.replace(new, self.folder / name)


def _fraction(progress: Progress) -> float:
    return round(progress.done / progress.total, 4) if progress.total else 1.0


def _time(found: Mapping[str, object], key: str) -> datetime | None:
    value = found.get(key)
    try:
        return datetime.fromisoformat(value) if isinstance(value, str) else None
    except ValueError:
        return None
