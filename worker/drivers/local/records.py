"""What lies in a replica's folder: who it is, its process, how it ended, what it was told.

Each file has one writer and is whole or absent, so that another worker, or the next one, sees
the same.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

from controlplane.domain.deployment import DeploymentId
from controlplane.paths import DataDir
from worker.drivers.local.processes import group_members, lives

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Order:
    """By the driver, before anything starts. `tmp` is the engine's own temporary folder, short
    because sockets lie in it; `command` is the hash of the command line."""

    slot: int
    render_hash: str
    name: str
    port: int
    devices: tuple[str, ...]
    tmp: str
    command: str


@dataclass(frozen=True, slots=True)
class Life:
    """By the process that becomes the engine: one life of a replica."""

    pid: int
    started: int
    boot: str
    session: int
    at: float
    log_offset: int
    command: str
    oom_kills: int

    @property
    def incarnation(self) -> str:
        return f"{self.pid}.{self.started}.{self.boot[:8]}"

    @property
    def started_at(self) -> datetime:
        return datetime.fromtimestamp(self.at, UTC)

    def main_lives(self) -> bool:
        return lives(self.pid, self.started, self.boot)

    def members(self) -> tuple[int, ...]:
        """Every living process of the engine's group, its main one included."""
        return group_members(self.pid, self.session, self.boot)


@dataclass(frozen=True, slots=True)
class Exit:
    """By the keeper. Exactly one of `status` and `signal` is a number."""

    pid: int
    status: int | None
    signal: int | None
    at: float
    oom_kills: int


@dataclass(frozen=True, slots=True)
class Stopped:
    """By whoever told it to end: written before the signal, and again after it."""

    incarnation: str
    at: float
    sent: bool = False
    killed_at: float | None = None


@dataclass(frozen=True, slots=True)
class ReplicaFolder:
    """One replica's folder. A record that is missing, or not readable as one (a machine that
    lost its power may leave such), is None: whether an engine runs then, the slot's lock
    knows."""

    path: Path

    @property
    def slot(self) -> int:
        """From the folder's name, which `naming.replica_name` makes."""
        return int(self.path.name.rsplit("-", 2)[1])

    @property
    def log(self) -> Path:
        return self.path / "engine.log"

    @property
    def older_log(self) -> Path:
        return self.path / "engine.log.1"

    def order(self) -> Order | None:
        order = self._read("order.json", Order)
        return order and replace(order, devices=tuple(order.devices))

    def life(self) -> Life | None:
        return self._read("process.json", Life)

    def exit(self) -> Exit | None:
        return self._read("exit.json", Exit)

    def stopped(self, life: Life) -> Stopped | None:
        """What it was told in this life."""
        told = self._read("stopped.json", Stopped)
        return told if told and told.incarnation == life.incarnation else None

    def answered(self, life: Life) -> bool:
        """True when it has answered in this life."""
        try:
            return (self.path / "answered").read_text(encoding="ascii") == life.incarnation
        except FileNotFoundError:
            return False

    def key(self) -> str:
        try:
            return (self.path / "engine-key").read_text(encoding="ascii")
        except FileNotFoundError:
            return ""

    def write_order(self, order: Order, key: str) -> None:
        self._write("engine-key", key)
        self._write("order.json", json.dumps(asdict(order)))

    def write_stopped(self, told: Stopped) -> None:
        self._write("stopped.json", json.dumps(asdict(told)))

    def write_answered(self, life: Life) -> None:
        self._write("answered", life.incarnation)

    def clear(self) -> None:
        """Removes all records. The logs stay, for people."""
        order = self.order()
        if order is not None:
            shutil.rmtree(order.tmp, ignore_errors=True)
        # The order goes last: it names what else there is to remove.
        for name in ("process.json", "exit.json", "stopped.json", "answered", "engine-key"):
            (self.path / name).unlink(missing_ok=True)
        (self.path / "order.json").unlink(missing_ok=True)

    def process_file(self) -> Path:
        return self.path / "process.json"

    def exit_file(self) -> Path:
        return self.path / "exit.json"

    def _read(self, name: str, kind: type[_T]) -> _T | None:
        try:
            raw = json.loads((self.path / name).read_text(encoding="utf-8"))
            known = {f.name for f in fields(kind)}  # type: ignore[arg-type]
            return kind(**{k: v for k, v in raw.items() if k in known})
        except (FileNotFoundError, ValueError, TypeError, AttributeError):
            return None

    def _write(self, name: str, text: str) -> None:
        new = self.path / f"{name}.new"
        with open(new, "w", encoding="utf-8", opener=_private) as f:
            f.write(text)
        new.replace(self.path / name)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def replica_folders(data: DataDir, deployment_id: DeploymentId) -> Iterator[ReplicaFolder]:
    """Every replica's folder of one deployment, in the order of their names."""
    try:
        entries = sorted(os.scandir(data.deployment(deployment_id)), key=lambda e: e.name)
    except FileNotFoundError:
        return
    yield from (ReplicaFolder(Path(e.path)) for e in entries if e.is_dir())


def owned_deployments(data: DataDir) -> list[DeploymentId]:
    """Every deployment that has a folder here."""
    try:
        entries = list(os.scandir(data.replicas))
    except FileNotFoundError:
        return []
    return [DeploymentId(e.name) for e in entries if e.is_dir() and not e.name.startswith(".")]
