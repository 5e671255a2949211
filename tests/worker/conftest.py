"""A desk for each test: reconcilers over a real database."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from controlplane.settings import Settings
from tests.worker.desk import Desk


@pytest.fixture
def desk(settings: Settings) -> Iterator[Desk]:
    made = Desk(settings)
    yield made
    made.close()
