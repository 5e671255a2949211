"""What a person asked of the supervisor, by signals: to stop, to hurry, to leave engines."""

from __future__ import annotations

import contextlib
import os
import select
import signal
from types import FrameType, TracebackType

# `down --keep-engines` says it this way.
KEEP_ENGINES = signal.SIGUSR1
_STOP = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, KEEP_ENGINES)


class Asked:
    """True once somebody asked to stop. Waiting ends early when a signal comes or a child
    ends. While it is entered, the signals are its own."""

    def __init__(self) -> None:
        self._times = 0
        self.keep_engines = False
        self._read, self._write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._before: dict[signal.Signals, object] = {}

    def __bool__(self) -> bool:
        return self._times > 0

    @property
    def hurried(self) -> bool:
        return self._times > 1

    def wait(self, seconds: float) -> None:
        ready, _, _ = select.select([self._read], [], [], seconds)
        if ready:
            with contextlib.suppress(BlockingIOError):
                os.read(self._read, 4096)

    def __enter__(self) -> Asked:
        for sign in _STOP:
            signal.signal(sign, self._stop)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, e: BaseException | None, tb: TracebackType | None
    ) -> None:
        signal.set_wakeup_fd(-1)

    def _stop(self, number: int, frame: FrameType | None) -> None:
        self.keep_engines = self.keep_engines or number == KEEP_ENGINES
        self._times += 1
