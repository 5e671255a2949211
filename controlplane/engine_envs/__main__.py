"""`python -m controlplane.engine_envs setup`: prints a line for each step, exits 0 or 1."""

from __future__ import annotations

import signal
import sys
from types import FrameType

from controlplane.engine_envs.setup import set_up
from controlplane.errors import AppError
from controlplane.long_jobs import Progress
from controlplane.settings import load_settings

_USAGE = "usage: python -m controlplane.engine_envs setup"
_STEP_PERCENT = 5


class _Lines:
    """Prints progress as lines: each new step, and every few percent of a long one."""

    def __init__(self) -> None:
        self._step, self._percent = "", -_STEP_PERCENT

    def __call__(self, progress: Progress) -> None:
        percent = int(progress.fraction * 100)
        if progress.step == self._step and percent < self._percent + _STEP_PERCENT:
            return
        self._step, self._percent = progress.step, percent
        print(f"{percent:3d} % {progress.message}", flush=True)


def main(args: list[str]) -> int:
    if args != ["setup"]:
        print(_USAGE, file=sys.stderr)
        return 2
    # The default would end us without ending the installer that we started.
    signal.signal(signal.SIGTERM, _end)
    try:
        set_up(load_settings(), _Lines())
    except AppError as e:
        print(f"{e.message} {e.hint}".strip(), file=sys.stderr, flush=True)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


def _end(number: int, frame: FrameType | None) -> None:
    raise SystemExit(128 + number)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
