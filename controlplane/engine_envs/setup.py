"""What `slipstream up` does in the background: the engine that fits this machine, then the
demo models. Everything that is there already is left as it is."""

from __future__ import annotations

from pathlib import Path

from controlplane.demo_models.make import make_demo_models
from controlplane.domain.tiers import DeviceKind
from controlplane.engine_envs.environments import installed
from controlplane.engine_envs.install import install
from controlplane.long_jobs import OnProgress
from controlplane.machine import find_devices
from controlplane.paths import DataDir
from controlplane.settings import Settings


def fitting_kind(settings: Settings) -> DeviceKind:
    """CUDA where this machine has a GPU, else its processor."""
    kinds = {device.kind for device in find_devices(settings)}
    return DeviceKind.CUDA if DeviceKind.CUDA in kinds else DeviceKind.CPU


def converting_python(settings: Settings) -> Path | None:
    """The interpreter of an installed engine, which has what the demo target is made with."""
    found = [env.python for env in installed(settings) if env.python]
    return found[-1] if found else None


def set_up(settings: Settings, on_progress: OnProgress) -> None:
    """Install the engine and make the demo models, whatever of it is missing.

    With SLIPSTREAM_ENGINE_COMMAND no engine is installed, and the demo models are made only
    where an engine was installed before. Raises AppError.
    """
    if not settings.engines.command:
        install(settings, fitting_kind(settings), None, on_progress)
    elif converting_python(settings) is None:
        return
    make_demo_models(DataDir(settings.data_dir), converting_python(settings), on_progress)
