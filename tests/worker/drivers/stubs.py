"""The local driver's world, with stub engines: real processes, ports and files."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import sys
from dataclasses import dataclass
from pathlib import Path

from controlplane.domain.deployment import Deployment
from controlplane.domain.tiers import DeviceKind
from controlplane.paths import DataDir
from controlplane.settings import Engines, Settings
from tests.worker.drivers.contract import SHARE, World, until
from worker.drivers.base import EngineSeen, EngineState, WeightsOrder, WeightsSeen, WeightsState
from worker.drivers.local.driver import FoundEngine, LocalDriver
from worker.drivers.local.start import Program

STUB = Path(__file__).parents[2] / "stub_engine"
COMMAND = (sys.executable, "-S", "-E", "-I", str(STUB))


def stub_command() -> str:
    """As SLIPSTREAM_ENGINE_COMMAND takes it."""
    return shlex.join(COMMAND)


class ReadyWeights:
    """Every model is where its test put it."""

    def __init__(self) -> None:
        self.ordered: list[WeightsOrder] = []

    def observe(self, model: str, revision: str | None) -> WeightsSeen:
        return WeightsSeen(WeightsState.READY, path=f"/models/{model}", revision=revision)

    def fetch(self, order: WeightsOrder) -> None:
        self.ordered.append(order)


class LocalWorld(World):
    """`end` takes every process away, however the test ended."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.settings = Settings(folder / "data", engines=Engines(log_bytes=20_000))
        self.data = DataDir(self.settings.data_dir)
        self.weights = ReadyWeights()
        self.program: Program | None = Program(COMMAND)
        self.ours = dict(os.environ)
        self.driver = self.again()

    def again(self) -> LocalDriver:
        return LocalDriver(
            self.settings,
            weights=self.weights,
            engines=self.find_engine,
            devices=lambda: (SHARE,),
            ours=self.ours,
        )

    def find_engine(self, _kind: DeviceKind, _version: str | None) -> FoundEngine:
        if self.program is None:
            return FoundEngine(EngineSeen(EngineState.MISSING))
        return FoundEngine(EngineSeen(EngineState.READY, "0.32.0"), self.program)

    def model_path(self, d: Deployment) -> str:
        path = self.folder / "models" / d.name
        path.mkdir(parents=True, exist_ok=True)
        return str(path)

    def steer(self, d: Deployment, **knobs: object) -> None:
        path = Path(self.model_path(d)) / "stub.json"
        known = json.loads(path.read_text()) if path.exists() else {}
        path.with_suffix(".new").write_text(json.dumps(known | knobs))
        path.with_suffix(".new").replace(path)

    def starts(self, d: Deployment) -> list[dict[str, int]]:
        """Every start there ever was, by the engines' own word."""
        return _lines(Path(self.model_path(d)) / "starts.jsonl")

    def hold_back(self, d: Deployment) -> None:
        self.steer(d, never_listen=True)

    def go_silent(self, d: Deployment) -> None:
        self.steer(d, mute=True)

    def ignore_term(self, d: Deployment) -> None:
        self.steer(d, hang_on_term=True)

    def die(self, d: Deployment, status: int) -> None:
        """Asked by a change of its knob: the next life starts with the knob as it is."""
        self.steer(d, die_now=status)
        until(lambda: self.processes(d) == 0)

    def processes(self, d: Deployment) -> int:
        path = self.model_path(d)
        return sum(path in p.words and str(STUB) in p.words for p in _all_processes())

    def leftovers(self) -> list[int]:
        """Whatever runs from this world: engines, their children, keepers."""
        mark = str(self.folder)
        groups = {line["pid"] for path in self._starts_files() for line in _lines(path)}
        return [
            p.pid
            for p in _all_processes()
            if p.group in groups or any(mark in word for word in (*p.words, *p.open_files()))
        ]

    def end(self) -> None:
        for pid in self.leftovers():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        until(lambda: not self.leftovers())
        # A keeper does this; those that were killed here can't any more.
        for path in self.data.replicas.rglob("order.json"):
            shutil.rmtree(json.loads(path.read_text() or "{}").get("tmp", ""), ignore_errors=True)

    def _starts_files(self) -> list[Path]:
        return list((self.folder / "models").glob("*/starts.jsonl"))


def _lines(path: Path) -> list[dict[str, int]]:
    return [json.loads(x) for x in path.read_text().splitlines()] if path.exists() else []


@dataclass(frozen=True)
class _Process:
    pid: int
    group: int
    words: tuple[str, ...]

    def open_files(self) -> list[str]:
        """A keeper is known by the log that it holds."""
        links = []
        for fd in (1, 2):
            try:
                links.append(os.readlink(f"/proc/{self.pid}/fd/{fd}"))
            except OSError:
                continue
        return links


def _all_processes() -> list[_Process]:
    """Read here and not by the driver's own code, which tests must not trust."""
    found = []
    for name in os.listdir("/proc"):
        try:
            pid = int(name)
            words = Path(f"/proc/{pid}/cmdline").read_bytes().decode("utf-8", "replace")
            if words:  # a zombie has none
                found.append(_Process(pid, os.getpgid(pid), tuple(words.split("\0"))))
        except (ValueError, OSError):
            continue
    return found
