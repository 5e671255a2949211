"""What is true of processes, from /proc: who lives, who belongs to a group."""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass
from functools import cache

_BOOT_ID = "/proc/sys/kernel/random/boot_id"
_DEAD = frozenset("ZX")


@dataclass(frozen=True, slots=True)
class Stat:
    """One process now. `started` is in ticks since the boot: with the pid and the boot's id
    it names one process for ever."""

    pid: int
    state: str
    group: int
    session: int
    started: int


@cache
def boot_id() -> str:
    with open(_BOOT_ID, encoding="ascii") as f:
        return f.read().strip()


def stat_of(pid: int) -> Stat | None:
    """None when there is no such process."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as f:
            words = f.read().rpartition(")")[2].split()
        return Stat(pid, words[0], int(words[2]), int(words[3]), int(words[19]))
    except (OSError, IndexError, ValueError):
        return None


def lives(pid: int, started: int, boot: str) -> bool:
    """True when the process with this pid is the one that started then, and not a zombie."""
    if boot != boot_id():
        return False
    stat = stat_of(pid)
    return stat is not None and stat.started == started and stat.state not in _DEAD


def group_members(group: int, session: int, boot: str) -> tuple[int, ...]:
    """The living processes of a group of that session. A session's number is not given out
    again while one of its processes lives, so no stranger is among them."""
    if boot != boot_id():
        return ()
    stats = (stat_of(int(name)) for name in os.listdir("/proc") if name.isdigit())
    return tuple(
        s.pid
        for s in stats
        if s and s.group == group and s.session == session and s.state not in _DEAD
    )


def is_tracker(pid: int) -> bool:
    """True for Python's helper that removes shared memory after everybody else ended. It ends
    by itself then; killed with them, it would leave what it guards behind."""
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as f:
            return b"multiprocessing.resource_tracker" in f.read()
    except OSError:
        return False


def send(pid: int, number: signal.Signals) -> None:
    """A signal to one process; one that has ended already is no error."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return


def send_group(group: int, number: signal.Signals) -> None:
    """A signal to a whole group; one that has ended already is no error."""
    try:
        os.killpg(group, number)
    except ProcessLookupError:
        return
