"""The engines' log files: one life's text, and rotation in place."""

from __future__ import annotations

import fcntl
import os
import shutil

from worker.drivers.local.records import Life, ReplicaFolder

LARGEST = 512_000  # bytes of a life that are read: a whole start is a tenth of that


def text_of(folder: ReplicaFolder, life: Life, largest: int = LARGEST) -> str:
    """What this life has written, its end where it is too much."""
    try:
        with open(folder.log, "rb") as f:
            size = os.fstat(f.fileno()).st_size
            start = 0 if _rotated_since(folder, life) else min(life.log_offset, size)
            f.seek(max(start, size - largest))
            return f.read(largest).decode("utf-8", "replace")
    except FileNotFoundError:
        return ""


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


def _rotated_since(folder: ReplicaFolder, life: Life) -> bool:
    try:
        return folder.older_log.stat().st_mtime > life.at
    except FileNotFoundError:
        return False
