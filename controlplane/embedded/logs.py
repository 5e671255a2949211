"""The log files of the children: kept small, and read for people."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

_TAIL_BYTES = 16_384


def rotate(log: Path, limit: int) -> None:
    """When `log` is larger than `limit`, keep it as `log.1` and empty it. The writer appends
    and notices nothing; what it writes during the copy may be lost."""
    try:
        if log.stat().st_size <= limit:
            return
    except OSError:
        return
    older = log.with_name(f"{log.name}.1")
    shutil.copyfile(log, older)
    older.chmod(0o600)
    os.truncate(log, 0)


def last_lines(log: Path, count: int) -> list[str]:
    """The last lines of `log` that say something, without control characters."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - _TAIL_BYTES))
            text = file.read().decode("utf-8", "replace")
    except OSError:
        return []
    lines = [printable(line) for line in text.splitlines()]
    return [line for line in lines if line][-count:]


def printable(line: str) -> str:
    """One line that can't move a terminal's cursor or colour it."""
    return "".join(c if c.isprintable() else " " for c in line).rstrip()


class Follower:
    """New whole lines of a growing file, from where it ends when this is made."""

    def __init__(self, log: Path) -> None:
        self._log = log
        self._at = log.stat().st_size if log.exists() else 0
        self._rest = b""

    def lines(self) -> list[str]:
        try:
            with self._log.open("rb") as file:
                if self._log.stat().st_size < self._at:
                    self._at = 0
                file.seek(self._at)
                new = file.read()
        except OSError:
            return []
        self._at += len(new)
        *whole, self._rest = (self._rest + new).split(b"\n")
        return [printable(w.decode("utf-8", "replace")) for w in whole]
