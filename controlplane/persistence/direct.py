"""A connection without SQLAlchemy, for the gateway: its process holds every stream, and the
mapper's 20 MB would be most of what it weighs."""

from __future__ import annotations

from typing import TypeAlias

from psycopg import AsyncConnection
from psycopg.rows import TupleRow

from controlplane.errors import Unavailable
from controlplane.settings import Settings

STATEMENT_SECONDS = 5

Connection: TypeAlias = AsyncConnection[TupleRow]


def conninfo(settings: Settings) -> str:
    """The database's address as libpq spells it. Raises Unavailable when there is none."""
    url = settings.stores.database_url
    if url is None:
        raise Unavailable(
            "no_database",
            "No database is configured.",
            hint="Start everything with slipstream up, or set SLIPSTREAM_DATABASE_URL.",
        )
    return url.replace("postgresql+psycopg://", "postgresql://", 1)


async def connect(info: str, application: str) -> Connection:
    """A fresh connection that commits each statement; every statement has a time limit."""
    return await AsyncConnection.connect(
        info,
        autocommit=True,
        application_name=f"slipstream-{application}",
        connect_timeout=STATEMENT_SECONDS,
        options=f"-c statement_timeout={STATEMENT_SECONDS}s -c timezone=UTC",
    )
