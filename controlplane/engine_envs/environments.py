"""Which engine environments there are. Pure reading, cheap enough for every reconcile."""

from __future__ import annotations

import json
import shlex
from dataclasses import dataclass
from pathlib import Path

from controlplane.domain.engines import engine_for
from controlplane.domain.tiers import DeviceKind
from controlplane.errors import Invalid
from controlplane.long_jobs import Job
from controlplane.paths import DataDir
from controlplane.settings import Settings

MARKER = "slipstream-engine.json"
"""Written last into a complete environment; says what it is."""


@dataclass(frozen=True, slots=True)
class EngineEnv:
    """An engine that can be started: `program` followed by `serve ...`.

    `preload` goes into LD_PRELOAD (Intel's OpenMP, which the CPU build is made for). `path`
    and `python` are None where SLIPSTREAM_ENGINE_COMMAND names the program.
    """

    kind: DeviceKind
    version: str
    program: tuple[str, ...]
    path: Path | None = None
    python: Path | None = None
    preload: Path | None = None


@dataclass(frozen=True, slots=True)
class Installing:
    """An engine that a living process installs right now."""

    kind: DeviceKind
    version: str
    fraction: float
    step: str
    message: str


@dataclass(frozen=True, slots=True)
class InstallError:
    """Why the last try to install an engine failed."""

    message: str
    hint: str


def engine_name(kind: DeviceKind, version: str) -> str:
    """`cpu-0.32.0`: the name of an environment's folder."""
    return f"{kind}-{version}"


def install_job(data: DataDir, kind: DeviceKind, version: str) -> Job:
    return Job(data.engines / engine_name(kind, version))


def find(
    settings: Settings, kind: DeviceKind, version: str | None = None
) -> EngineEnv | Installing | None:
    """The engine for `kind`, at `version` or the newest that we know.

    None: it is not here, and nobody installs it; `last_error` may say why. An environment
    of a version that we don't know any more is found all the same. Raises Invalid where no
    engine of any version runs on `kind`.
    """
    wanted = version or engine_for(kind).version
    if settings.engines.command:
        return _named_by_hand(settings.engines.command, kind, wanted)
    data = DataDir(settings.data_dir)
    found = read(data.engines / engine_name(kind, wanted))
    if found:
        return found
    seen = install_job(data, kind, wanted).seen()
    if seen and seen.running:
        p = seen.progress
        return Installing(kind, wanted, p.fraction, p.step, p.message)
    return None


def last_error(
    settings: Settings, kind: DeviceKind, version: str | None = None
) -> InstallError | None:
    """Why the last install of this engine failed; None when none did, or one runs again."""
    wanted = version or engine_for(kind).version
    seen = install_job(DataDir(settings.data_dir), kind, wanted).seen()
    if seen is None or seen.running or not seen.error:
        return None
    return InstallError(seen.error, seen.hint)


def installed(settings: Settings) -> tuple[EngineEnv, ...]:
    """Every complete environment below the data directory, by name."""
    engines = DataDir(settings.data_dir).engines
    if not engines.is_dir():
        return ()
    found = (read(folder) for folder in sorted(engines.iterdir()) if folder.name[0] != ".")
    return tuple(env for env in found if env)


def read(folder: Path) -> EngineEnv | None:
    """The environment in `folder`; None unless it is complete."""
    try:
        raw = json.loads((folder / MARKER).read_bytes())
        kind, version = DeviceKind(raw["kind"]), str(raw["version"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
    python, vllm = folder / "bin" / "python", folder / "bin" / "vllm"
    if not python.exists() or not vllm.exists():
        return None  # the interpreter that it was made with is gone
    openmp = folder / "lib" / "libiomp5.so"
    preload = openmp if kind is DeviceKind.CPU and openmp.exists() else None
    return EngineEnv(kind, version, (str(python), str(vllm)), folder, python, preload)


def _named_by_hand(text: str, kind: DeviceKind, version: str) -> EngineEnv:
    try:
        program = tuple(shlex.split(text))
    except ValueError:
        program = ()
    if not program:
        raise Invalid(
            "invalid_setting",
            "SLIPSTREAM_ENGINE_COMMAND is not a command.",
            hint="It is read as a shell reads words: check its quotes.",
        )
    return EngineEnv(kind, version, program)
