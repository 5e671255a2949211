"""The local driver's world as a fixture. All its processes end with the test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.worker.drivers.stubs import LocalWorld


@pytest.fixture
def local(tmp_path: Path) -> Iterator[LocalWorld]:
    world = LocalWorld(tmp_path)
    try:
        yield world
    finally:
        world.end()
