"""What the whole one-machine system takes when idle, and how long a second start is."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections import defaultdict
from pathlib import Path

import psutil

from controlplane.embedded.state import RunFolder
from tests.bench.latency import Figure
from tests.system.machine import STUB, free_port

SETTLE_SECONDS = 20.0  # after start-up, before memory is read: an idle system is a quiet one
SLIPSTREAM = [sys.executable, "-m", "controlplane.cli.main"]


def second_start_and_memory(folder: Path) -> list[Figure]:
    """`slipstream up -d` twice on the same data, then proportional memory by process."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith("SLIPSTREAM_")}
    environ = kept | {
        "SLIPSTREAM_DATA_DIR": str(folder / "data"),
        "SLIPSTREAM_PORT": str(free_port()),
        "SLIPSTREAM_ENGINE_COMMAND": f"{sys.executable} {STUB}",
    }
    first = _up(environ)
    _down(environ)
    second = _up(environ)
    try:
        time.sleep(SETTLE_SECONDS)
        memory = _memory(folder / "data")
    finally:
        _down(environ)
    rows = [Figure(f"memory: {name}", [mb], "MB") for name, mb in sorted(memory.items())]
    return [
        Figure("first start, environment installed", [first], "s"),
        Figure("second start", [second], "s", goal=8.0),
        *rows,
        Figure("memory: whole idle system", [sum(memory.values())], "MB", goal=400.0),
    ]


def _up(environ: dict[str, str]) -> float:
    begun = time.monotonic()
    subprocess.run([*SLIPSTREAM, "up", "-d"], env=environ, check=True, capture_output=True)
    return time.monotonic() - begun


def _down(environ: dict[str, str]) -> None:
    subprocess.run([*SLIPSTREAM, "down"], env=environ, check=True, capture_output=True)


def _memory(data: Path) -> dict[str, float]:
    """Proportional set size in MB by part: shared pages are counted once, divided."""
    found: dict[str, float] = defaultdict(float)
    running = RunFolder(data).read()
    assert running is not None
    supervisor = psutil.Process(running.pid)
    for process in [supervisor, *supervisor.children(recursive=True)]:
        line = " ".join(process.cmdline()) or process.name()
        found[_part(line)] += process.memory_full_info().pss / 1e6
    return dict(found)


def _part(line: str) -> str:
    for word in ("controlplane.api", "controlplane.gateway", "valkey", "postgres"):
        if word in line:
            return word.removeprefix("controlplane.")
    return "worker" if "-m worker" in line else "supervisor"
