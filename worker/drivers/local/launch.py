"""Starting an engine through its keeper (`shim.py`)."""

from __future__ import annotations

import marshal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from controlplane.domain.reasons import Reason
from worker.drivers.base import EffectRefused, Unreachable
from worker.drivers.local.records import ReplicaFolder

SHIM = Path(__file__).with_name("shim.py")
SECONDS = 4.0  # it takes hundredths; a machine that swaps may need more


def launch(
    folder: ReplicaFolder,
    *,
    slot_fd: int,
    argv: Sequence[str],
    env: Mapping[str, str],
    command: str,
    tmp: str,
) -> None:
    """Returns once the engine's program runs, recorded. `slot_fd` goes on to it.

    Raises EffectRefused when the program can't be run, Unreachable when it could not be
    told: then it may run or not, and the slot's lock knows.
    """
    order = {
        "argv": list(argv),
        "env": dict(env),
        "lock_fd": slot_fd,
        "log": str(folder.log),
        "process": str(folder.process_file()),
        "exit": str(folder.exit_file()),
        "command": command,
        "tmp": tmp,
    }
    # -S -E -I: no site, no environment, no folder of ours: small, and nobody's code but its own.
    try:
        done = subprocess.run(
            [sys.executable, "-S", "-E", "-I", str(SHIM)],
            input=marshal.dumps(order),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            pass_fds=(slot_fd,),
            env={},
            cwd="/",
            start_new_session=True,
            timeout=SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as e:
        raise Unreachable(f"the engine's keeper did not start: {type(e).__name__}") from e
    words = done.stdout.decode("utf-8", "replace")
    if words:
        raise EffectRefused(
            Reason.ENGINE_MISSING, f"The engine's program can't be run: {words[:200]}."
        )
    if done.returncode != 0 or not folder.process_file().exists():
        raise Unreachable("the engine's keeper ended before the engine ran")
