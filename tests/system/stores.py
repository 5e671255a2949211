"""A database and a broker of the test's own, that can be stopped and started."""

from __future__ import annotations

import signal
import subprocess
from dataclasses import dataclass
from pathlib import Path

from controlplane.embedded import postgres, valkey


@dataclass
class Stores:
    """Both run after `start`. The database keeps its files over a restart; the broker, whose
    messages are hints, keeps nothing."""

    folder: Path
    database: subprocess.Popen[bytes] | None = None
    broker: subprocess.Popen[bytes] | None = None

    def __post_init__(self) -> None:
        self.database_place = postgres.place_of(self.folder, self.folder / "system")
        self.broker_place = valkey.place_of(self.folder)

    def start(self) -> None:
        if self.database is None:
            self.database = postgres.start(self.database_place, durable=False)
        if self.broker is None:
            self.broker = valkey.start(self.broker_place)

    def stop_database(self) -> None:
        """Fast: every connection is cut."""
        if self.database is not None:
            postgres.end(self.database)
            self.database = None

    def kill_broker(self) -> None:
        if self.broker is not None:
            self.broker.send_signal(signal.SIGKILL)
            self.broker.wait(10)
            self.broker = None

    def flush_broker(self) -> None:
        assert valkey.flush(self.broker_place)

    def close(self) -> None:
        self.kill_broker()
        self.stop_database()
