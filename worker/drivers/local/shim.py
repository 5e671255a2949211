"""The engine's parent: a small program of its own, standard library only.

Run as a file (`python -S -E -I shim.py`), with the order on its standard input (marshal). It
leaves a keeper behind, in a session of its own and nobody's child, so that neither a worker's
end nor a terminal's touches an engine. The keeper starts the engine in a process group of its
own, waits, writes down how it ended, and ends what is left of its group. The engine does not
need the keeper: if that is killed, nothing but those notes is lost.

The slot's lock comes in as an open file and goes on to the engine, so that it is held from
before this program started until the engine's main process has ended. The engine's pid is
written by the process that becomes the engine, before it does: no engine runs unrecorded.

Exit status: 0, the engine's program runs; 1, it could not be run (standard output says why).
"""

from __future__ import annotations

import marshal
import os
import signal
import sys
import time

TYPE_CHECKING = False  # as in `typing`, which is too large for this program
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

CHILDREN_SECONDS = 2.0  # what a main process that ended leaves its helpers to clean up in
POLL_SECONDS = 0.05
SHARED_MEMORY = "/dev/shm"  # noqa: S108
OPENMP_MARK = "__KMP_REGISTERED_LIB_"


def main() -> int:
    try:
        order = marshal.loads(sys.stdin.buffer.read())  # noqa: S302 (our parent wrote it)
    except (EOFError, ValueError, TypeError):
        return 1  # whoever ordered this died in the middle of it
    told, tell = os.pipe()
    if os.fork():
        os.close(tell)
        os.close(order["lock_fd"])
        words = os.read(told, 4096)
        os.write(1, words)
        return 1 if words else 0
    os.close(told)
    _keep(order, tell)
    return 0


def _keep(order: dict[str, Any], tell: int) -> None:
    os.setsid()
    os.umask(0o077)
    log = os.open(order["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    null = os.open("/dev/null", os.O_RDONLY)
    os.dup2(null, 0)
    os.dup2(log, 1)
    os.dup2(log, 2)
    session = os.getpid()
    engine = os.fork()
    if engine == 0:
        _become_engine(order, tell, session)
    os.close(tell)
    # Not reaped yet: until then its pid, and with it its group's number, can't be reused.
    how = os.waitid(os.P_PID, engine, os.WEXITED | os.WNOWAIT)
    status, ended_by = "null", "null"
    if how is not None and how.si_code == os.CLD_EXITED:
        status = str(how.si_status)
    elif how is not None:
        ended_by = str(how.si_status)
    _write(
        order["exit"],
        f'{{"pid": {engine}, "status": {status}, "signal": {ended_by}, '
        f'"at": {time.time():.3f}, "oom_kills": {oom_kills()}}}\n',
    )
    _end_group(engine)
    os.waitpid(engine, 0)
    _remove_tree(order["tmp"])
    _remove_openmp_marks()


def _become_engine(order: dict[str, Any], tell: int, session: int) -> None:
    try:
        os.setpgid(0, 0)
        with open("/proc/self/stat") as f:
            started = f.read().rpartition(")")[2].split()[19]
        _write(
            order["process"],
            f'{{"pid": {os.getpid()}, "started": {started}, "boot": "{boot()}", '
            f'"session": {session}, "at": {time.time():.3f}, '
            f'"log_offset": {os.fstat(1).st_size}, "command": "{order["command"]}", '
            f'"oom_kills": {oom_kills()}}}\n',
        )
        for number in (signal.SIGPIPE, signal.SIGXFSZ):
            # Python ignores these two, and what is ignored stays so over an exec.
            signal.signal(number, signal.SIG_DFL)
        _offer_to_the_oom_killer()
        os.set_inheritable(order["lock_fd"], True)
        os.chdir(order["tmp"])
        os.execvpe(order["argv"][0], order["argv"], order["env"])  # noqa: S606 (no shell)
    except OSError as e:
        os.write(tell, (e.strerror or "unknown").encode())
    finally:
        os._exit(127)


def _offer_to_the_oom_killer() -> None:
    """Where memory runs out, an engine goes, which can be started again, and not a database."""
    try:
        with open("/proc/self/oom_score_adj", "w") as f:
            f.write("500")
    except OSError:
        pass


def _end_group(group: int) -> None:
    """The group's other members: time to clean up, then SIGKILL."""
    deadline = time.monotonic() + CHILDREN_SECONDS
    while members(group):
        if time.monotonic() > deadline:
            os.killpg(group, signal.SIGKILL)
        time.sleep(POLL_SECONDS)


def members(group: int) -> list[int]:
    """The living processes of a group, from /proc."""
    pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]
    return [pid for pid in pids if _group_of(pid) == group]


def _group_of(pid: int) -> int | None:
    """None for a process that has ended, or is a zombie."""
    try:
        with open(f"/proc/{pid}/stat") as f:
            state, _parent, group = f.read().rpartition(")")[2].split()[:3]
    except (OSError, ValueError):
        return None
    return None if state in "ZX" else int(group)


def boot() -> str:
    """This boot's id: after another one, no pid means anything."""
    with open("/proc/sys/kernel/random/boot_id") as f:
        return f.read().strip()


def oom_kills() -> int:
    """How often the kernel has killed for want of memory since it started; -1: not told."""
    try:
        with open("/proc/vmstat") as f:
            for line in f:
                if line.startswith("oom_kill "):
                    return int(line.split()[1])
    except (OSError, ValueError):
        pass
    return -1


def _write(path: str, text: str) -> None:
    """Whole or not at all. If the folder is gone, nobody wants to know any more."""
    try:
        with open(path + ".new", "w") as f:
            f.write(text)
        os.replace(path + ".new", path)
    except FileNotFoundError:
        pass


def _remove_openmp_marks() -> None:
    """Intel's OpenMP marks each process by a file in shared memory, and one that was killed
    leaves it behind. A mark of a process that is no more means nothing to anybody."""
    try:
        names = os.listdir(SHARED_MEMORY)
    except OSError:
        return
    for name in names:
        pid = name.removeprefix(OPENMP_MARK).partition("_")[0]
        if name.startswith(OPENMP_MARK) and pid.isdigit() and _group_of(int(pid)) is None:
            _quietly(os.unlink, os.path.join(SHARED_MEMORY, name))


def _remove_tree(path: str) -> None:
    for folder, folders, files in os.walk(path, topdown=False):
        for name in files:
            _quietly(os.unlink, os.path.join(folder, name))
        for name in folders:
            whole = os.path.join(folder, name)
            _quietly(os.unlink if os.path.islink(whole) else os.rmdir, whole)
    _quietly(os.rmdir, path)


def _quietly(remove: Callable[[str], None], path: str) -> None:
    try:  # noqa: SIM105 (contextlib is too large for this program)
        remove(path)
    except OSError:
        pass


if __name__ == "__main__":
    sys.exit(main())
