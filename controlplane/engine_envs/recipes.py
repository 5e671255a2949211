"""What goes into an engine environment: the requirement, its locks, and the ways to get it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from controlplane.domain.engines import Engine
from controlplane.domain.tiers import GIB, DeviceKind
from controlplane.uv import PackageSources, find_links_args

_LOCKS = Path(__file__).parent / "locks"
WITHOUT_GPU_PARTS = _LOCKS / "without-gpu-parts.txt"
_TORCH_OF_THE_INDEX = "torch==2.13.0\n"


@dataclass(frozen=True, slots=True)
class Attempt:
    """One way to get an engine: uv's arguments, what a person is told first, and how much
    room it takes."""

    args: tuple[str, ...]
    says: str
    bytes_needed: int
    overrides: str = ""


def attempts(engine: Engine, kind: DeviceKind, sources: PackageSources) -> tuple[Attempt, ...]:
    """The ways to install `engine`, best first. The next one is tried only where the one
    before found no build of torch."""
    wanted = (*find_links_args(sources), f"{engine.package}=={engine.version}")
    if kind is not DeviceKind.CPU:
        # Unmeasured: written without a GPU at hand. uv finds torch's build for the driver.
        return (Attempt(("--torch-backend", "auto", *wanted), "Getting the engine", 16 * GIB),)
    lock = _LOCKS / f"{kind}-{engine.version}.txt"
    locked = (*(("--constraints", str(lock)) if lock.exists() else ()), *wanted)
    without = WITHOUT_GPU_PARTS.read_text(encoding="utf-8")
    ways = [
        Attempt(
            ("--torch-backend", "cpu", *locked),
            "Getting the engine, with PyTorch from its own package index",
            6 * GIB,
            without,
        ),
        Attempt(
            locked,
            "PyTorch's CPU build can't be had here, so the full build comes along: 3 GB more to "
            "download",
            12 * GIB,
            without + _TORCH_OF_THE_INDEX,
        ),
    ]
    if sources.find_links:
        ways.insert(0, Attempt(locked, "Getting the engine", 6 * GIB, without))
    return tuple(ways)
