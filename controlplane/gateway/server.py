"""The gateway's process: its socket, its signals, its end."""

from __future__ import annotations

import asyncio
import contextlib
import math
import secrets
import signal
import socket
from collections.abc import Iterator

import uvicorn

from controlplane.errors import Unavailable
from controlplane.gateway.app import GatewayApp
from controlplane.gateway.engines import client_session
from controlplane.settings import Server, Settings
from controlplane.telemetry import logger

# Longer than common clients keep idle connections, so that none is closed as it is used.
_KEEP_ALIVE_SECONDS = 75
_BACKLOG = 2048
# Held requests get their answer this long before what still runs is cut.
_LAST_WORDS = 2.0
_log = logger("gateway")


class _Uvicorn(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Signals are ours: after the server there is still a row to remove."""
        yield


def listening_socket(server: Server) -> socket.socket:
    """Raises Unavailable, in a sentence, when the address can't be had."""
    family = socket.AF_INET6 if ":" in server.host else socket.AF_INET
    try:
        return socket.create_server((server.host, server.port), family=family, backlog=_BACKLOG)
    except OSError as e:
        raise Unavailable(
            "address_not_free",
            f"The gateway can't listen on {server.host} port {server.port}: {e.strerror}.",
            hint="Stop what uses it, or choose another: SLIPSTREAM_PORT.",
        ) from e


async def serve(settings: Settings) -> None:
    """Serve until SIGTERM or SIGINT; then take nothing new, let requests in flight end within
    the drain limit, and leave. A second signal cuts them."""
    listener = listening_socket(settings.server)
    gateway_id = f"gw-{socket.gethostname()[:40]}-{secrets.token_hex(6)}"
    async with client_session() as session:
        app = GatewayApp(settings, gateway_id, session)
        server = _Uvicorn(_config(app, settings.traffic.drain_limit))
        loop = asyncio.get_running_loop()

        def stop() -> None:
            if app.stopping:
                server.force_exit = True
                return
            _log.info("gateway_stopping", in_flight=sum(app.counts.in_flight().values()))
            app.stopping = server.should_exit = True
            app.front_door.close_streams()
            patience = max(0.0, settings.traffic.drain_limit - _LAST_WORDS)
            loop.call_later(patience, app.room.close)

        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop)
        app.start()
        _log.info("gateway_listening", id=gateway_id, port=listener.getsockname()[1])
        try:
            await server.serve(sockets=[listener])
        finally:
            await app.stop()


def _config(app: GatewayApp, drain_limit: float) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        interface="asgi3",
        http="httptools",
        loop="none",
        ws="none",
        lifespan="off",
        access_log=False,
        log_config=None,
        proxy_headers=False,
        server_header=False,
        date_header=False,
        timeout_keep_alive=_KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=math.ceil(drain_limit),
    )
