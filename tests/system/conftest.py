"""A machine of its own for each test."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.system.machine import Machine


@pytest.fixture
def machine(tmp_path: Path, database_url: str, valkey_url: str) -> Iterator[Machine]:
    made = Machine(tmp_path, database_url, valkey_url)
    try:
        made.up()
        yield made
    finally:
        made.close()
