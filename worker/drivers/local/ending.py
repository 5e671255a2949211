"""Telling an engine to end, so that it counts as told and not as failed."""

from __future__ import annotations

import signal
import time
from dataclasses import replace

from worker.drivers.local.processes import is_tracker, send, send_group
from worker.drivers.local.records import Life, ReplicaFolder, Stopped

TRACKER_SECONDS = 2.0  # what the helper that frees shared memory gets after all others ended


def end(folder: ReplicaFolder, life: Life, *, kill: bool) -> None:
    """SIGTERM to the group, once in a life; or SIGKILL, as often as asked. When nothing of
    the engine lives any more, its records are cleared instead."""
    if not life.members():
        folder.clear()
        return
    told = folder.stopped(life) or Stopped(life.incarnation, time.time())
    if kill:
        _kill(folder, life, told)
    elif not told.sent:
        # Written first: whoever sees the process end in between must not call it a failure.
        folder.write_stopped(told)
        send_group(life.pid, signal.SIGTERM)
        folder.write_stopped(replace(told, sent=True))


def _kill(folder: ReplicaFolder, life: Life, told: Stopped) -> None:
    first = told.killed_at is None
    if first:
        told = replace(told, sent=True, killed_at=time.time())
        folder.write_stopped(told)
    if not first and time.time() - (told.killed_at or 0) > TRACKER_SECONDS:
        send_group(life.pid, signal.SIGKILL)
        return
    for pid in life.members():
        if not is_tracker(pid):
            send(pid, signal.SIGKILL)
