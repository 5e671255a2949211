"""The engine's installation, beside a system that serves already."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from controlplane.embedded.children import end_group, spawn
from controlplane.embedded.console import command, say
from controlplane.embedded.logs import Follower
from controlplane.embedded.parts import environment
from controlplane.settings import Settings


@dataclass(slots=True)
class EngineSetup:
    """A child that makes sure of the engine that fits this machine and of the demo models;
    its lines are its progress."""

    process: subprocess.Popen[bytes]
    follower: Follower
    log: Path
    done: bool = False

    @classmethod
    def begin(cls, settings: Settings, log: Path) -> EngineSetup | None:
        """None where no engine of ours is wanted."""
        if settings.driver != "local" or settings.engines.command is not None:
            return None
        follower = Follower(log)
        env = environment(settings, "setup", os.environ)
        argv = [sys.executable, "-m", "controlplane.engine_envs", "setup"]
        return cls(spawn(argv, log=log, env=env), follower, log)

    def relay(self) -> None:
        """Tell the person what is new."""
        if self.done:
            return
        self.done = self.process.poll() is not None
        for line in self.follower.lines():
            say(f"engine: {line}")
        if self.done and self.process.returncode != 0:
            say(f"engine: not installed; the log: {self.log}")
            say(f"engine: to try again: {command('engines install')}")

    def end(self) -> None:
        """Cut it short; it goes on where it was the next time."""
        if self.process.poll() is None:
            end_group(self.process, signal.SIGTERM, grace=5.0)
