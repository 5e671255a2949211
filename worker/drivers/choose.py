"""The driver that the settings name."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from controlplane.domain.deployment import DeploymentId
from controlplane.errors import Refused
from controlplane.machine import find_devices
from controlplane.paths import DataDir
from controlplane.settings import Settings
from worker.drivers.base import Driver
from worker.drivers.fake import FakeDriver, FakeWorld
from worker.drivers.local.build import local_driver
from worker.drivers.local.watch import Watcher


def choose_driver(settings: Settings, registered: Callable[[], Mapping[str, str]]) -> Driver:
    """`registered` tells the folders of `local/NAME`. Raises Refused for a driver that this
    version does not have."""
    if settings.driver == "fake":
        return FakeDriver(FakeWorld(devices=find_devices(settings)))
    if settings.driver == "local":
        return local_driver(settings, registered)
    raise Refused(
        "driver_not_here",
        f"This version has no {settings.driver} driver yet.",
        hint="Leave SLIPSTREAM_DRIVER out: engines then run on this machine.",
    )


def choose_watcher(settings: Settings, tell: Callable[[DeploymentId], None]) -> Watcher | None:
    """What notices an engine's first answer or its end sooner than a timer does."""
    if settings.driver == "local":
        return Watcher(DataDir(settings.data_dir), tell)
    return None
