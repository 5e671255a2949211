"""The local driver, held to the contract with real processes."""

from __future__ import annotations

import pytest

from tests.worker.drivers.contract import DriverContract
from tests.worker.drivers.stubs import LocalWorld


@pytest.fixture
def world(local: LocalWorld) -> LocalWorld:
    return local


class TestLocalDriver(DriverContract):
    pass
