"""Three locks: a deployment's effects (with its fence), a slot's engine, the port table.

All are `flock`s on open files: the kernel drops them when the last process that holds the file
ends, so none outlives a crash.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from worker.drivers.base import Fence, StaleFence, Unreachable

WAIT_SECONDS = 2.0  # an effect takes a fraction of a second; then somebody hangs
POLL_SECONDS = 0.02


@contextmanager
def fenced(folder: Path, fence: Fence) -> Iterator[None]:
    """The sole right to effects on one deployment, for `fence`'s holder.

    Raises StaleFence when a newer token was seen here, Unreachable when somebody else holds
    the right for seconds.
    """
    with _exclusive(folder / "fence") as fd:
        seen = int(os.pread(fd, 32, 0) or b"0")
        if fence.token < seen:
            raise StaleFence(f"token {fence.token}, and {seen} was seen")
        if fence.token > seen:
            os.pwrite(fd, b"%020d" % fence.token, 0)
        yield


@contextmanager
def unfenced(folder: Path) -> Iterator[None]:
    """The same right, whoever had it before: only for stopping everything by a person's word."""
    with _exclusive(folder / "fence"):
        yield


@contextmanager
def port_table(replicas: Path) -> Iterator[None]:
    """The sole right to choose a port in this data directory."""
    with _exclusive(replicas / ".ports"):
        yield


def try_slot(folder: Path, slot: int) -> int | None:
    """An open file that holds the slot, or None when something else holds it. It is held until
    every process that has this file open has closed it or ended."""
    path = folder / f"slot-{slot}.lock"
    fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(fd)
        return None
    return fd


def slot_held(folder: Path, slot: int) -> bool:
    """True while an engine of this slot runs, is just being started, or is cleaned up after."""
    try:
        fd = os.open(folder / f"slot-{slot}.lock", os.O_RDONLY)
    except FileNotFoundError:
        return False
    try:
        # Shared, so that two who ask don't take each other for an engine.
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return False


@contextmanager
def _exclusive(path: Path) -> Iterator[int]:
    fd = _open_locked(path)
    try:
        yield fd
    finally:
        os.close(fd)


def _open_locked(path: Path) -> int:
    deadline = time.monotonic() + WAIT_SECONDS
    while True:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        except FileNotFoundError:
            continue  # the folder was just removed
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is_at(fd, path):
                return fd
        except BlockingIOError:
            pass
        os.close(fd)
        if time.monotonic() > deadline:
            raise Unreachable(f"{path.name}: somebody else holds it")
        time.sleep(POLL_SECONDS)


def _is_at(fd: int, path: Path) -> bool:
    """False when the file was removed, or replaced, between opening and locking it."""
    try:
        return os.path.samestat(os.fstat(fd), os.stat(path))
    except FileNotFoundError:
        return False
