"""The local driver with this machine's real parts."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping

from controlplane.domain.tiers import DeviceKind
from controlplane.engine_envs import EngineEnv, Installing, find, last_error
from controlplane.errors import Invalid
from controlplane.machine import find_devices
from controlplane.settings import Settings
from worker.drivers.base import EngineSeen, EngineState
from worker.drivers.local.driver import Engines, FoundEngine, LocalDriver
from worker.drivers.local.start import Program
from worker.drivers.local.weights import LocalWeights


def local_driver(settings: Settings, registered: Callable[[], Mapping[str, str]]) -> LocalDriver:
    """`registered` tells the folders of `local/NAME`, by name."""
    return LocalDriver(
        settings,
        weights=LocalWeights(settings, registered),
        engines=engines_of(settings),
        devices=lambda: find_devices(settings),
        ours=os.environ,
    )


def engines_of(settings: Settings) -> Engines:
    """The engine environments of this machine, as the driver asks for them."""

    def look(kind: DeviceKind, version: str | None) -> FoundEngine:
        try:
            found = find(settings, kind, version)
        except Invalid as e:
            return FoundEngine(EngineSeen(EngineState.MISSING, detail=e.message))
        if isinstance(found, EngineEnv):
            preload = str(found.preload) if found.preload else None
            return FoundEngine(
                EngineSeen(EngineState.READY, found.version), Program(found.program, preload)
            )
        if isinstance(found, Installing):
            return FoundEngine(
                EngineSeen(EngineState.INSTALLING, found.version, found.fraction, found.message)
            )
        failed = last_error(settings, kind, version)
        detail = f"{failed.message} {failed.hint}".strip() if failed else ""
        return FoundEngine(EngineSeen(EngineState.MISSING, version, detail=detail))

    return look
