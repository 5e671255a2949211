"""The engines' log files: one life's text, and rotation in place."""

from __future__ import annotations

import fcntl
import os
import shutil
from pathlib import Path

from worker.drivers.local.records import Life, ReplicaFolder

LARGEST = 512_000  # bytes of a life that are read: a whole start is a tenth of that


def text_of(folder: ReplicaFolder, life: Life, largest: int = LARGEST) -> str:
    """What this life has written, its end where it is too much. A log that was rotated
    meanwhile is read across both files."""
    older, older_changed = _tail(folder.older_log, life.log_offset, largest)
    if older_changed is None or older_changed <= life.at:
        text, _ = _tail(folder.log, life.log_offset, largest)
        return text.decode("utf-8", "replace")
    text, _ = _tail(folder.log, 0, largest)
    return (older + text)[-largest:].decode("utf-8", "replace")


def _tail(path: Path, start: int, largest: int) -> tuple[bytes, float | None]:
    """The text from `start` on, or from the beginning where the file ends before that; and
    when it was changed last, None for no file."""
    try:
        with open(path, "rb") as f:
            stat = os.fstat(f.fileno())
            start = start if start <= stat.st_size else 0
            f.seek(max(start, stat.st_size - largest))
            return f.read(largest), stat.st_mtime
    except FileNotFoundError:
        return b"", None


def rotate(folder: ReplicaFolder, largest: int) -> None:
    """Moves a log beyond `largest` bytes to the older one. The engine keeps its open file, so
    the text is copied and the file emptied; what is written in between is lost."""
    try:
        if folder.log.stat().st_size <= largest:
            return
        with open(folder.log, "r+b") as f:
            fcntl.flock(f, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.fstat(f.fileno()).st_size <= largest:
                return
            new = folder.older_log.with_suffix(".new")
            with open(new, "wb", opener=_private) as older:
                shutil.copyfileobj(f, older)
            new.replace(folder.older_log)
            f.truncate(0)
    except (FileNotFoundError, BlockingIOError):
        return


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)
