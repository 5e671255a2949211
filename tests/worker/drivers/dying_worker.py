"""A worker that starts a replica and kills itself at one step of it:
`python -m tests.worker.drivers.dying_worker FOLDER STEP`."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.worker.drivers.contract import fence
from tests.worker.drivers.stubs import LocalWorld
from worker.drivers.local import launch, start
from worker.drivers.local.records import ReplicaFolder


def die(*_a: Any, **_k: Any) -> Any:
    os.kill(os.getpid(), signal.SIGKILL)


def _after(owner: Any, name: str) -> Callable[[], None]:
    def patch() -> None:
        real = getattr(owner, name)

        def then_die(*args: Any, **kwargs: Any) -> Any:
            real(*args, **kwargs)
            die()

        setattr(owner, name, then_die)

    return patch


def _spawn(share: float) -> Callable[[], None]:
    """The keeper's program starts and gets that share of its order."""

    def run(argv: list[str], **kwargs: Any) -> Any:
        data = kwargs["input"]
        process = subprocess.Popen(
            argv,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            pass_fds=kwargs["pass_fds"],
            env={},
            start_new_session=True,
        )
        assert process.stdin is not None
        process.stdin.write(data[: int(len(data) * share)])
        process.stdin.flush()
        die()

    return lambda: setattr(launch.subprocess, "run", run)


STEPS: dict[str, Callable[[], None]] = {
    "slot claimed": _after(start, "_claim_slot"),
    "tidied": _after(start, "_tidy"),
    "port chosen": _after(start, "choose_port"),
    "order written": _after(ReplicaFolder, "write_order"),
    "all written": _after(start, "_write_down"),
    "order half given": _spawn(0.5),
    "order given": _spawn(1.0),
    "launched": _after(start, "launch"),
    "done": lambda: None,
}


def main(folder: str, step: str) -> None:
    world = LocalWorld(Path(folder))
    d = world.deployment()
    STEPS[step]()
    world.driver.start(world.order(d), fence(d))
    die()


if __name__ == "__main__":
    main(*sys.argv[1:])
