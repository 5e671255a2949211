"""One gateway process for all tests that leave it as it is."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import create_engine, text

from controlplane.embedded.postgres import PostgresPlace
from tests.gateway.world import World


@pytest.fixture(scope="session")
def gateway(
    postgres_server: PostgresPlace, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[World]:
    """A gateway over a database of its own. Each test visits it with a workspace of its own."""
    url = _copy_of_template(postgres_server)
    folder: Path = tmp_path_factory.mktemp("gateway")
    world = World(folder, url)
    world.start()
    yield world
    world.end()


def _copy_of_template(server: PostgresPlace) -> str:
    engine = create_engine(server.url("postgres"), isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.execute(text("CREATE DATABASE gateways TEMPLATE slipstream_template"))
    engine.dispose()
    return server.url("gateways")
