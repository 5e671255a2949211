"""What a database server that was killed leaves behind."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from pathlib import Path

import psutil

_GRACE = 30.0


def clear_stale_pid(data: Path) -> None:
    """Make sure that no other server works on `data`, and that its pid file bars no start.

    PostgreSQL itself takes a pid file for stale only when no process has that number; after
    a reboot or in a container another program may. A server that still ends (its supervisor
    was killed) is waited for, and after 30 s told to end at once.
    """
    file = data / "postmaster.pid"
    deadline = time.monotonic() + _GRACE
    told = False
    while (server := _server_of(file, data)) is not None:
        with contextlib.suppress(ProcessLookupError):
            if not told:
                os.kill(server, signal.SIGINT)
                told = True
            elif time.monotonic() > deadline:
                os.kill(server, signal.SIGQUIT)
                deadline = time.monotonic() + _GRACE
        time.sleep(0.05)
    file.unlink(missing_ok=True)


def _server_of(file: Path, data: Path) -> int | None:
    """The pid in `file` when that process is a PostgreSQL server on `data`."""
    try:
        pid = int(file.read_text(encoding="utf-8").split("\n", 1)[0])
        words = psutil.Process(pid).cmdline()
    except (OSError, ValueError, psutil.Error):
        return None
    ours = words and Path(words[0]).name == "postgres" and str(data) in words
    return pid if ours else None
