"""The local driver's world, with stub engines: real processes, ports and files."""

from __future__ import annotations

import json
import os
import shlex
import signal
import sys
from pathlib import Path

import psutil

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
        path = Path(self.model_path(d)) / "starts.jsonl"
        return [json.loads(x) for x in path.read_text().splitlines()] if path.exists() else []

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

    def engines(self, d: Deployment) -> list[psutil.Process]:
        path = self.model_path(d)
        return [p for p in _all_processes() if path in _arguments(p) and str(STUB) in _arguments(p)]

    def processes(self, d: Deployment) -> int:
        return len(self.engines(d))

    def leftovers(self) -> list[psutil.Process]:
        """Whatever runs from this world: engines, their children, keepers."""
        mark = str(self.folder)
        found = [p for p in _all_processes() if mark in _all_of(p)]
        groups = {line["pid"] for d in self._models() for line in self._lines(d)}
        return found + [p for p in _all_processes() if _group(p) in groups and p not in found]

    def end(self) -> None:
        for p in self.leftovers():
            try:
                os.kill(p.pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        until(lambda: not self.leftovers())

    def _models(self) -> list[Path]:
        models = self.folder / "models"
        return [p for p in models.iterdir() if p.is_dir()] if models.exists() else []

    def _lines(self, model: Path) -> list[dict[str, int]]:
        path = model / "starts.jsonl"
        return [json.loads(x) for x in path.read_text().splitlines()] if path.exists() else []


def _all_processes() -> list[psutil.Process]:
    return [p for p in psutil.process_iter() if _alive(p)]


def _alive(p: psutil.Process) -> bool:
    try:
        return p.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


def _arguments(p: psutil.Process) -> list[str]:
    try:
        return p.cmdline()
    except psutil.Error:
        return []


def _all_of(p: psutil.Process) -> str:
    """Its command line and its open files: a keeper is known by the log that it holds."""
    links = []
    for fd in (1, 2):
        try:
            links.append(os.readlink(f"/proc/{p.pid}/fd/{fd}"))
        except OSError:
            continue
    return " ".join([*_arguments(p), *links])


def _group(p: psutil.Process) -> int:
    try:
        return os.getpgid(p.pid)
    except ProcessLookupError:
        return 0
