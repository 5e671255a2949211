"""Brings a database to the newest schema, under a lock, however many start at once."""

from __future__ import annotations

import time
from pathlib import Path

from alembic import command
from alembic.config import Config
from sqlalchemy import Engine, text
from sqlalchemy.exc import OperationalError

import migrations
from controlplane.errors import Unavailable
from controlplane.persistence.session import make_engine
from controlplane.settings import Settings

WAIT_SECONDS = 30.0
_LOCK = 7_305_119_402_663  # any number that is ours alone among advisory locks
_LATE = 600  # a migration may take its time; the usual statement limit is for requests


def alembic_config() -> Config:
    """Alembic's configuration without a file: the scripts are package data."""
    config = Config()
    config.set_main_option("script_location", str(Path(migrations.__file__).parent))
    return config


def migrate(settings: Settings) -> None:
    """Wait until the database accepts connections, then run what migrations are due.

    Safe to call from any number of processes at once: one works, the others wait for it.
    Raises Unavailable when the database doesn't answer within 30 seconds.
    """
    engine = make_engine(settings, "migrate")
    try:
        _wait(engine)
        with engine.connect() as connection:
            connection.execute(text(f"SET statement_timeout = '{_LATE}s'"))
            connection.execute(text("SET idle_in_transaction_session_timeout = 0"))
            connection.execute(text("SELECT pg_advisory_lock(:lock)"), {"lock": _LOCK})
            connection.commit()
            try:
                config = alembic_config()
                config.attributes["connection"] = connection
                command.upgrade(config, "head")
                connection.commit()
            finally:
                connection.rollback()
                connection.execute(text("SELECT pg_advisory_unlock(:lock)"), {"lock": _LOCK})
                connection.commit()
    finally:
        engine.dispose()


def _wait(engine: Engine) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while True:
        try:
            with engine.connect():
                return
        except OperationalError as e:
            if time.monotonic() > deadline:
                raise Unavailable(
                    "database_unavailable",
                    "The database does not accept connections.",
                    hint="Check SLIPSTREAM_DATABASE_URL, or run slipstream doctor.",
                ) from e
            time.sleep(0.1)
