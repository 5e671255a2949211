"""Fixtures that tests of several rooms share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.hub_server.machine import Machine
from tests.hub_server.server import HubServer, hub_server


@pytest.fixture
def hub() -> Iterator[HubServer]:
    with hub_server() as server:
        yield server


@pytest.fixture
def machine(tmp_path: Path, hub: HubServer) -> Iterator[Machine]:
    """A machine without weights; its downloads end with the test."""
    made = Machine(tmp_path / "data", hub)
    yield made
    hub.faults.release.set()
    made.weights.stop_all()
