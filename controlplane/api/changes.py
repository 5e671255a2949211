"""The change stream's heart: one listening connection for the process, and for every reader
the newest state of each deployment that changed since it last looked.

A reader that is slow skips states and never the last one, and what waits for it is bounded
by the number of deployments. After the listening connection was lost, notifications may be
lost with it: every reader then gets a fresh snapshot.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from datetime import datetime

import psycopg
from sqlalchemy.engine import make_url
from starlette.concurrency import run_in_threadpool

from controlplane.errors import Unavailable
from controlplane.persistence.changes import CHANGES
from controlplane.services import changes
from controlplane.services.site import Site
from controlplane.services.views import View
from controlplane.telemetry import logger

log = logger(__name__)
_QUIET = 5.0  # seconds between looks at the connection while nothing is heard
_GATHER = 0.02  # what comes within this time is loaded together
_RETRY_FIRST, _RETRY_CAP = 0.2, 5.0


class Reader:
    """One open stream. `stale` says that only a fresh snapshot tells it the truth again."""

    def __init__(self, workspace: str) -> None:
        self.workspace = workspace
        self.stale = True
        self.news = asyncio.Event()
        self._pending: dict[str, View] = {}

    def offer(self, view: View) -> None:
        self._pending[view.id] = view
        self.news.set()

    def spoil(self) -> None:
        self._pending.clear()
        self.stale = True
        self.news.set()

    def take(self) -> list[View]:
        """What changed since the last call, each deployment once."""
        found = list(self._pending.values())
        self._pending.clear()
        self.news.clear()
        return found


class ChangeHub:
    """Listens while the app lives and hands changes to its readers."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._readers: set[Reader] = set()
        self.as_of: datetime | None = None
        self.closing = asyncio.Event()

    def join(self, workspace: str) -> Reader:
        reader = Reader(workspace)
        self._readers.add(reader)
        return reader

    def leave(self, reader: Reader) -> None:
        self._readers.discard(reader)

    def close(self) -> None:
        """End every stream: the process is about to go."""
        self.closing.set()
        for reader in self._readers:
            reader.news.set()

    async def run(self) -> None:
        """Listen for ever, through losses of the database. Ends by being cancelled."""
        delay = _RETRY_FIRST
        while True:
            try:
                await self._listen()
            except (psycopg.Error, Unavailable, OSError) as e:
                log.warning("change_stream_lost", error=type(e).__name__)
            if self.as_of is not None:
                delay = _RETRY_FIRST
            self.as_of = None
            await asyncio.sleep(delay)
            delay = min(2 * delay, _RETRY_CAP)

    async def _listen(self) -> None:
        url = make_url(self._site.settings.stores.database_url or "")
        conninfo = url.set(drivername="postgresql").render_as_string(hide_password=False)
        connection = await psycopg.AsyncConnection.connect(
            conninfo, autocommit=True, connect_timeout=5, application_name="slipstream-api-listen"
        )
        async with connection:
            await connection.execute(f"LISTEN {CHANGES}")
            self.as_of = await _clock(connection)
            for reader in self._readers:
                reader.spoil()
            while True:
                ids = await _heard(connection)
                if ids:
                    self._publish(await run_in_threadpool(changes.load, self._site, ids))
                self.as_of = await _clock(connection)

    def _publish(self, views: Collection[View]) -> None:
        for view in views:
            for reader in self._readers:
                if reader.workspace == view.workspace:
                    reader.offer(view)


async def _heard(connection: psycopg.AsyncConnection[tuple[object, ...]]) -> set[str]:
    ids = {n.payload async for n in connection.notifies(timeout=_QUIET, stop_after=1)}
    if ids:
        ids |= {n.payload async for n in connection.notifies(timeout=_GATHER)}
    return ids


async def _clock(connection: psycopg.AsyncConnection[tuple[object, ...]]) -> datetime:
    row = await (await connection.execute("SELECT clock_timestamp()")).fetchone()
    if row is None or not isinstance(row[0], datetime):
        raise psycopg.DataError("no clock")
    return row[0]
