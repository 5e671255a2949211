"""Real PostgreSQL and Valkey for the tests that ask for them, started once for a run.

They end with the run, however it ends, and everything of theirs lies in one temporary
folder. Nothing here touches a person's own data directory or port.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import uuid
from collections.abc import Generator, Iterator
from pathlib import Path

import psycopg
import pytest

from controlplane.embedded import postgres, valkey
from controlplane.persistence.migrate import migrate
from controlplane.settings import Settings, Stores

pytest_plugins = ["pytester"]

_TEMPLATE = "slipstream_template"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """With SLIPSTREAM_TEST_STRICT=1 a skip is a failure: on a machine that is meant to have
    every part, a level that doesn't run shows nothing."""
    report = yield
    strict = os.environ.get("SLIPSTREAM_TEST_STRICT") == "1"
    if strict and report.skipped and not hasattr(report, "wasxfail"):
        why = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        report.outcome = "failed"
        report.longrepr = f"SLIPSTREAM_TEST_STRICT=1 allows no skip. {why}"
    return report


@pytest.fixture(scope="session")
def stores_dir() -> Iterator[Path]:
    """A folder for servers. Its path is short, for sockets, and others can pass through it,
    because as root PostgreSQL runs as another user."""
    folder = Path(tempfile.mkdtemp(prefix="slipstream-tests-"))
    folder.chmod(0o711)
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def postgres_server(stores_dir: Path) -> Iterator[postgres.PostgresPlace]:
    """One server for the run; its database `slipstream_template` is migrated."""
    place = postgres.place_of(stores_dir / "data", stores_dir / "system")
    process = postgres.start(place, durable=False)
    try:
        _sql(place, f'CREATE DATABASE "{_TEMPLATE}"')
        migrate(Settings(stores_dir, stores=Stores(database_url=place.url(_TEMPLATE))))
        yield place
    finally:
        postgres.end(process)


@pytest.fixture
def database_url(postgres_server: postgres.PostgresPlace) -> Iterator[str]:
    """A fresh, migrated database of this test's own."""
    name = f"t_{uuid.uuid4().hex}"
    _sql(postgres_server, f'CREATE DATABASE "{name}" TEMPLATE "{_TEMPLATE}"')
    yield postgres_server.url(name)
    _sql(postgres_server, f'DROP DATABASE "{name}" WITH (FORCE)')


@pytest.fixture
def empty_database_url(postgres_server: postgres.PostgresPlace) -> Iterator[str]:
    """A fresh database without any table, for tests of migrations."""
    name = f"t_{uuid.uuid4().hex}"
    _sql(postgres_server, f'CREATE DATABASE "{name}"')
    yield postgres_server.url(name)
    _sql(postgres_server, f'DROP DATABASE "{name}" WITH (FORCE)')


@pytest.fixture(scope="session")
def valkey_server(stores_dir: Path) -> Iterator[valkey.ValkeyPlace]:
    place = valkey.place_of(stores_dir / "data")
    process = valkey.start(place)
    yield place
    valkey.end(process)


@pytest.fixture
def valkey_url(valkey_server: valkey.ValkeyPlace) -> Iterator[str]:
    """The run's broker, empty. Tests run one after another, so they can share it."""
    valkey.flush(valkey_server)
    yield valkey_server.url
    valkey.flush(valkey_server)


@pytest.fixture
def settings(tmp_path: Path, database_url: str, valkey_url: str) -> Settings:
    """Settings for a data directory of this test's own, with real stores behind them."""
    return Settings(
        data_dir=tmp_path / "data",
        stores=Stores(database_url=database_url, redis_url=valkey_url),
    )


def _sql(place: postgres.PostgresPlace, statement: str) -> None:
    with psycopg.connect(
        host=str(place.sockets), user=postgres.NAME, dbname="postgres", autocommit=True
    ) as connection:
        connection.execute(statement.encode())
