"""A real worker process over real stores, with the fake driver."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from controlplane.settings import Settings

ROOT = Path(__file__).resolve().parents[2]
PATIENCE = 60.0
T = TypeVar("T")


def until(look: Callable[[], T], what: str) -> T:
    deadline = time.monotonic() + PATIENCE
    while not (found := look()):
        assert time.monotonic() < deadline, f"never came: {what}"
        time.sleep(0.05)
    return found


class WorkerProcess:
    def __init__(self, settings: Settings, folder: Path, name: str = "worker", **more: str) -> None:
        kept = {k: v for k, v in os.environ.items() if not k.startswith("SLIPSTREAM_")}
        self.environ = kept | {
            "SLIPSTREAM_DATA_DIR": str(settings.data_dir),
            "SLIPSTREAM_DATABASE_URL": settings.stores.database_url or "",
            "SLIPSTREAM_REDIS_URL": settings.stores.redis_url or "",
            "SLIPSTREAM_DRIVER": "fake",
            "SLIPSTREAM_CPU_SLOTS": "1",
            "SLIPSTREAM_SWEEP_SECONDS": "2",
            "PYTHONPATH": str(ROOT),
            **more,
        }
        self.log = folder / f"{name}.log"
        self.process = self._start()

    def _start(self) -> subprocess.Popen[bytes]:
        with self.log.open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "worker"], env=self.environ, stdout=log, stderr=log
            )

    def restart(self, how: signal.Signals = signal.SIGKILL) -> int:
        status = self.end(how)
        self.process = self._start()
        return status

    def end(self, how: signal.Signals = signal.SIGTERM) -> int:
        self.process.send_signal(how)
        return self.process.wait(timeout=PATIENCE)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait(timeout=PATIENCE)

    def text(self) -> str:
        return self.log.read_text(errors="replace")

    def lives(self) -> bool:
        return self.process.poll() is None
