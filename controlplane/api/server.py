"""The server around the application: where it listens, and how it ends."""

from __future__ import annotations

import asyncio
import signal
import socket
from types import FrameType

import uvicorn
from fastapi import FastAPI

HOST = "127.0.0.1"
_KEEP_ALIVE = 75  # above the front door's own, so that it never writes into a closing one
_GRACE = 5  # seconds for calls in flight once the process is told to end


class ApiServer(uvicorn.Server):
    """Ends streams at once when it is told to end: they would never end by themselves."""

    def __init__(self, app: FastAPI, port: int) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                host=HOST,
                port=port,
                access_log=False,  # paths hold sign-in tokens
                log_config=None,
                server_header=False,
                timeout_keep_alive=_KEEP_ALIVE,
                timeout_graceful_shutdown=_GRACE,
            )
        )
        self._app = app
        self._loop: asyncio.AbstractEventLoop | None = None

    async def serve(self, sockets: list[socket.socket] | None = None) -> None:
        self._loop = asyncio.get_running_loop()
        await super().serve(sockets)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """From a signal, or from another thread. The signal isn't raised again afterwards, as
        uvicorn would: an end that was asked for is exit status 0."""
        self.force_exit = self.should_exit and sig == signal.SIGINT
        self.should_exit = True
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._app.state.changes.close)
