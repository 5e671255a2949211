"""Child processes that end with us, each in a process group of its own.

A terminal's Ctrl-C reaches the foreground group only, so that children are ended in the
order that we choose; and when this process dies, however it dies, the kernel tells them.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True, slots=True)
class Account:
    """Whom a child runs as; None everywhere means: as ourselves."""

    uid: int
    gid: int


def spawn(
    argv: Sequence[str],
    *,
    log: Path,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    account: Account | None = None,
    when_orphaned: signal.Signals = signal.SIGTERM,
) -> subprocess.Popen[bytes]:
    """Start `argv` with its output appended to `log`, which is made for its owner only.

    `when_orphaned` is sent to it when the thread that called this is gone, so call it from
    a thread that lives as long as the process does.
    """
    fd = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    try:
        return subprocess.Popen(
            list(argv),
            stdin=subprocess.DEVNULL,
            stdout=fd,
            stderr=fd,
            cwd=cwd,
            env=None if env is None else dict(env),
            process_group=0,
            preexec_fn=_tied_to(os.getpid(), when_orphaned),  # noqa: PLW1509 -- one prctl
            user=account.uid if account else None,
            group=account.gid if account else None,
            extra_groups=() if account else None,
        )
    finally:
        os.close(fd)


def run(
    argv: Sequence[str],
    *,
    account: Account | None = None,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    text_in: str = "",
    timeout: float = 120.0,
) -> subprocess.CompletedProcess[str]:
    """Run a short program to its end and return what it said; it ends with us, too. One that
    takes longer than `timeout` is killed, and its status is 124."""
    try:
        return subprocess.run(
            list(argv),
            input=text_in,
            capture_output=True,
            text=True,
            errors="replace",
            cwd=cwd,
            env=None if env is None else dict(env),
            timeout=timeout,
            check=False,
            process_group=0,
            preexec_fn=_tied_to(os.getpid(), signal.SIGKILL),
            user=account.uid if account else None,
            group=account.gid if account else None,
            extra_groups=() if account else None,
        )
    except subprocess.TimeoutExpired:
        late = f"It did not end within {timeout:g} seconds."
        return subprocess.CompletedProcess(list(argv), 124, "", late)


def stop(process: subprocess.Popen[bytes], sign: signal.Signals, grace: float) -> bool:
    """Send `sign` and wait up to `grace` seconds; then end its whole group by SIGKILL.
    True when it went by itself. Repeating it does no harm."""
    if process.poll() is not None:
        return True
    process.send_signal(sign)
    try:
        process.wait(grace)
    except subprocess.TimeoutExpired:
        kill_group(process)
        process.wait(10)
        return False
    return True


def end_group(process: subprocess.Popen[bytes], sign: signal.Signals, grace: float) -> None:
    """As `stop`, with `sign` to its whole group: for programs that start others."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, sign)
    stop(process, sign, grace)


def kill_group(process: subprocess.Popen[bytes]) -> None:
    """SIGKILL to a child of `spawn` and all of its group."""
    if process.poll() is None:
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            return


def _tied_to(parent: int, sign: signal.Signals) -> Callable[[], None]:
    def tie() -> None:
        _libc.prctl(_PR_SET_PDEATHSIG, int(sign), 0, 0, 0)
        if os.getppid() != parent:  # it died before the line above
            os._exit(1)

    return tie
