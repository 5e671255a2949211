"""One machine for a module's tests: starting its processes costs more than most tests do.
Each test finds it whole and empty; one that can't be made so is replaced."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.system.machine import Machine
from tests.system.stores import Stores


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory, stores_dir: Path) -> Iterator[Stores]:
    folder = stores_dir / tmp_path_factory.mktemp("own").name
    made = Stores(folder)
    made.start()
    yield made
    made.close()


@pytest.fixture(scope="module")
def machines(tmp_path_factory: pytest.TempPathFactory, stores: Stores) -> Iterator[list[Machine]]:
    """The machine of the moment, as the one item of a list; none before the first test."""
    made: list[Machine] = []
    yield made
    for machine in made:
        machine.close()


@pytest.fixture
def machine(
    machines: list[Machine], stores: Stores, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Machine]:
    if not machines:
        folder = tmp_path_factory.mktemp("machine")
        machines.append(Machine(folder, stores.database_place.url(), stores.broker_place.url))
        machines[0].up()
    yield machines[0]
    stores.start()
    try:
        machines[0].tidy(stores.broker_place.url)
    except BaseException:
        machines.pop().close()
        raise
