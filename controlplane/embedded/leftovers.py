"""Processes that an `up` which was killed left behind, and engines that outlive any `up`."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from controlplane.paths import DataDir

_GRACE = 30.0
_START_FIELD = 19  # of /proc/PID/stat, counted from what follows the closing bracket


@dataclass(frozen=True, slots=True)
class Life:
    """One life of one process: numbers are used again, start times are not."""

    pid: int
    started: int


def life_of(pid: int) -> Life | None:
    """The life that has this number now; None: nobody, or one that has ended."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    words = text.rpartition(")")[2].split()
    return None if words[0] in "ZX" else Life(pid, int(words[_START_FIELD]))


def command_of(pid: int) -> list[str]:
    """The words that a process was started with; none when it is gone."""
    try:
        text = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return []
    return [os.fsdecode(w) for w in text.split(b"\0")]


@dataclass(frozen=True, slots=True)
class Engine:
    """One engine that lives: the deployment's name, and its main process."""

    name: str
    pid: int


def engines_of(data_dir: Path) -> tuple[Engine, ...]:
    """The local engines that live, by the records that the worker's driver keeps of them; a
    record that can't be read names none."""
    found = []
    for record in sorted(DataDir(data_dir).replicas.glob("*/*/process.json")):
        try:
            raw = json.loads(record.read_bytes())
            life = Life(int(raw["pid"]), int(raw["started"]))
            name = str(json.loads(record.with_name("order.json").read_bytes())["name"])
        except (OSError, ValueError, KeyError, TypeError):
            continue
        if raw.get("boot") == _boot_id() and life_of(life.pid) == life:
            found.append(Engine(name, life.pid))
    return tuple(found)


def _boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


def end_lives(lives: Iterable[Life], grace: float) -> None:
    """Wait for processes that were told to end already, and kill those that don't within
    `grace` seconds."""
    left = [x for x in lives if life_of(x.pid) == x]
    _until(lambda: not any(life_of(x.pid) == x for x in left), grace)
    for x in left:
        if life_of(x.pid) == x:
            with contextlib.suppress(ProcessLookupError):
                os.kill(x.pid, signal.SIGKILL)
    _until(lambda: not any(life_of(x.pid) == x for x in left), grace)


def clear_stale_pid(data: Path) -> None:
    """Make sure that no other PostgreSQL works on `data`, and that its pid file bars no start.

    PostgreSQL itself takes a pid file for stale only when no process has that number; after
    a reboot or in a container another program may. A server that still ends (its supervisor
    was killed) is waited for, and after 30 s told to end at once.
    """
    file = data / "postmaster.pid"
    for sign in (signal.SIGINT, signal.SIGQUIT):
        server = _server_of(file, data)
        if server is None:
            break
        with contextlib.suppress(ProcessLookupError):
            os.kill(server.pid, sign)
        _until(lambda life=server: life_of(life.pid) != life, _GRACE)  # type: ignore[misc]
    file.unlink(missing_ok=True)


def _server_of(file: Path, data: Path) -> Life | None:
    """Who is named in `file`, when that is a PostgreSQL server on `data`."""
    try:
        pid = int(file.read_text(encoding="utf-8").split("\n", 1)[0])
    except (OSError, ValueError):
        return None
    words = command_of(pid)
    ours = words and Path(words[0]).name == "postgres" and str(data) in words
    return life_of(pid) if ours else None


def _until(true: Callable[[], bool], within: float) -> None:
    deadline = time.monotonic() + within
    while not true() and time.monotonic() < deadline:
        time.sleep(0.05)
