"""The local driver, held to the contract with real processes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.worker.drivers.contract import DriverContract
from tests.worker.drivers.stubs import LocalWorld


@pytest.fixture
def world(tmp_path: Path) -> Iterator[LocalWorld]:
    world = LocalWorld(tmp_path)
    try:
        yield world
    finally:
        world.end()


class TestLocalDriver(DriverContract):
    pass
