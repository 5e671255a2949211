"""One child that is kept alive: started again when it ends, later each time."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from controlplane.embedded.children import kill_group
from controlplane.embedded.leftovers import Life, life_of

Launch = Callable[[], subprocess.Popen[bytes]]
_FIRST_DELAY = 0.5
_LONGEST_DELAY = 30.0
_SETTLED = 60.0  # who lived this long starts its delays anew


@dataclass(slots=True)
class Kept:
    """`launch` starts it and returns at once. `failures` counts ends in a row that nobody
    asked for."""

    name: str
    log: Path
    launch: Launch
    sign: signal.Signals
    grace: float
    says: str = ""
    failures: int = 0
    _process: subprocess.Popen[bytes] | None = field(default=None, init=False)
    _started: float = field(default=0.0, init=False)
    _due: float = field(default=0.0, init=False)

    @property
    def life(self) -> Life | None:
        return life_of(self._process.pid) if self._process else None

    @property
    def alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        self._process = self.launch()
        self._started = time.monotonic()

    def look(self) -> str | None:
        """Notice an end, or start it again when that is due. Returns what to tell, if
        anything happened."""
        now = time.monotonic()
        if self._process is None:
            if now < self._due:
                return None
            self.start()
            return ""
        status = self._process.poll()
        if status is None:
            return None
        if now - self._started > _SETTLED:
            self.failures = 0
        self.failures += 1
        delay = min(_LONGEST_DELAY, _FIRST_DELAY * 2 ** (self.failures - 1))
        self._process, self._due = None, now + delay
        return f"{self.name} ended ({_told(status)}); it starts again in {delay:g} s"

    def tell(self) -> None:
        """Ask it to end."""
        if self._process is not None and self.alive:
            self._process.send_signal(self.sign)

    def kill(self) -> None:
        """End it and all of its group at once."""
        if self._process is not None:
            kill_group(self._process)
            self._process.wait(10)


def _told(status: int) -> str:
    if status >= 0:
        return f"exit {status}"
    try:
        return signal.Signals(-status).name
    except ValueError:
        return f"signal {-status}"
