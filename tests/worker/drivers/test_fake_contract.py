"""The fake driver, held to the contract: what tests prove on it is true of the real one."""

from __future__ import annotations

import pytest

from controlplane.domain.deployment import Deployment
from tests.worker.drivers.contract import SHARE, DriverContract, World
from worker.drivers.base import Driver, ReplicaState
from worker.drivers.fake import FakeDriver, FakeWorld


class SteeredFake(World):
    def __init__(self) -> None:
        self.fake = FakeWorld(devices=(SHARE,))
        self.driver = self.again()

    def again(self) -> Driver:
        return FakeDriver(self.fake)

    def model_path(self, d: Deployment) -> str:
        return f"/weights/{d.name}"

    def hold_back(self, d: Deployment) -> None:
        self.fake.held_back.add(d.id)

    def go_silent(self, d: Deployment) -> None:
        self.fake.change(d.id, ReplicaState.SILENT)

    def ignore_term(self, d: Deployment) -> None:
        self.fake.ignores_term.add(d.id)

    def die(self, d: Deployment, status: int) -> None:
        self.fake.end(d.id)

    def processes(self, d: Deployment) -> int:
        return self.fake.running(d.id)


@pytest.fixture
def world() -> SteeredFake:
    return SteeredFake()


class TestFakeDriver(DriverContract):
    pass
