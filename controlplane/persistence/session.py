"""Engines and sessions. Every statement has a time limit, so that a stuck database is an
error and not a wait."""

from __future__ import annotations

from sqlalchemy import Engine, create_engine
from sqlalchemy.orm import Session, sessionmaker

from controlplane.errors import Unavailable
from controlplane.settings import Settings

STATEMENT_SECONDS = 5


def make_engine(settings: Settings, application: str) -> Engine:
    """A pool for one process. `application` names it in `pg_stat_activity`.

    Raises Unavailable when no database is configured; connects at first use only.
    """
    url = settings.stores.database_url
    if url is None:
        raise Unavailable(
            "no_database",
            "No database is configured.",
            hint="Start everything with slipstream up, or set SLIPSTREAM_DATABASE_URL.",
        )
    return create_engine(
        url,
        pool_size=settings.stores.pool_size,
        max_overflow=settings.stores.pool_size,
        pool_pre_ping=True,
        pool_timeout=STATEMENT_SECONDS,
        hide_parameters=True,  # an error's text must not show keys or their digests
        connect_args={
            "application_name": f"slipstream-{application}",
            "connect_timeout": STATEMENT_SECONDS,
            "options": f"-c statement_timeout={STATEMENT_SECONDS}s -c timezone=UTC"
            f" -c idle_in_transaction_session_timeout={2 * STATEMENT_SECONDS}s",
        },
    )


def make_sessions(engine: Engine) -> sessionmaker[Session]:
    return sessionmaker(engine, expire_on_commit=False)
