"""Writing what this gateway does: its heartbeat, and the wakes that its requests ask for."""

from __future__ import annotations

import asyncio
import time

from controlplane.gateway.dispatch import Dispatcher
from controlplane.gateway.loader import STORE_ERRORS
from controlplane.persistence import direct, heartbeats
from controlplane.persistence.direct import Connection
from controlplane.settings import Settings
from controlplane.telemetry import logger

_CALL_SECONDS = 10.0
_RETRY_SECONDS = 0.25
_log = logger("gateway")


class Heart:
    """One connection, one writer: beats at a steady pace and stores wakes as they are
    wanted, retrying until each is stored or nobody wants it any more."""

    def __init__(self, gateway_id: str, settings: Settings) -> None:
        """Raises Unavailable when no database is configured."""
        self.gateway_id = gateway_id
        self._info, self._every = direct.conninfo(settings), settings.traffic.heartbeat_every
        self._wake_wanted = asyncio.Event()
        self._connection: Connection | None = None

    def store_wakes_soon(self) -> None:
        self._wake_wanted.set()

    async def beat_on(self, dispatcher: Dispatcher) -> None:
        """Never returns."""
        next_beat = time.monotonic()
        while True:
            try:
                async with asyncio.timeout(_CALL_SECONDS):
                    connection = await self._connected()
                    await self._store_wakes(connection, dispatcher)
                    if time.monotonic() >= next_beat:
                        next_beat = time.monotonic() + self._every
                        dispatcher.renew_wakes()
                        await self._beat(connection, dispatcher)
                await self._wanted_or(next_beat)
            except STORE_ERRORS as e:
                if dispatcher.book.shown_epoch:
                    _log.warning("heartbeat_not_stored", error=type(e).__name__)
                dispatcher.book.lost()
                await self._disconnect()
                await asyncio.sleep(_RETRY_SECONDS)

    async def stop(self) -> None:
        """Remove our row: nothing is in flight here any more. A database that is away keeps
        the row, which then grows old."""
        try:
            async with asyncio.timeout(_CALL_SECONDS):
                await heartbeats.leave(await self._connected(), self.gateway_id)
        except STORE_ERRORS as e:
            _log.warning("heartbeat_not_removed", error=type(e).__name__)
        await self._disconnect()

    async def _beat(self, connection: Connection, dispatcher: Dispatcher) -> None:
        # Epoch and counts are taken in one step, so that they belong together.
        epoch = dispatcher.book.shown_epoch
        snapshot = dispatcher.counts.snapshot(time.monotonic(), dispatcher.room.held())
        await heartbeats.beat(connection, self.gateway_id, epoch, snapshot.activity)
        dispatcher.counts.stored(snapshot)

    async def _store_wakes(self, connection: Connection, dispatcher: Dispatcher) -> None:
        self._wake_wanted.clear()
        for wanted in dispatcher.wakes.due():
            await heartbeats.ask_for_wake(
                connection,
                wanted.deployment_id,
                asked_by=f"gateway:{self.gateway_id}",
                lifetime=wanted.lifetime,
            )
            wanted.stored = True

    async def _wanted_or(self, moment: float) -> None:
        try:
            async with asyncio.timeout(max(0.0, moment - time.monotonic())):
                await self._wake_wanted.wait()
        except TimeoutError:
            return

    async def _connected(self) -> Connection:
        if self._connection is None or self._connection.closed:
            self._connection = await direct.connect(self._info, "gateway-heart")
        return self._connection

    async def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()
