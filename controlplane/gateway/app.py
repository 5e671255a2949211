"""The gateway as an ASGI application: what is ours, and what goes through the front door."""

from __future__ import annotations

import asyncio
import json

import aiohttp
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from controlplane.gateway.asgi import Receive, Scope, Send, respond
from controlplane.gateway.book import Book
from controlplane.gateway.counts import Counts
from controlplane.gateway.dispatch import Dispatcher
from controlplane.gateway.engines import Engines
from controlplane.gateway.exposition import merged
from controlplane.gateway.front_door import FrontDoor
from controlplane.gateway.heart import Heart
from controlplane.gateway.inference import Inference
from controlplane.gateway.loader import keep_fresh
from controlplane.gateway.waiting import WaitingRoom
from controlplane.gateway.wakes import Wakes
from controlplane.settings import Settings
from controlplane.telemetry import GATEWAY_IN_FLIGHT, GATEWAY_WAITING

_JSON = [(b"content-type", b"application/json")]


class GatewayApp:
    """Everything in this process, wired. `start` inside a running loop, `stop` at the end."""

    def __init__(self, settings: Settings, gateway_id: str, session: aiohttp.ClientSession) -> None:
        self.heart = Heart(gateway_id, settings)
        self.room = WaitingRoom(settings.gateway.held_bytes)
        self.counts = Counts()
        self.book = Book()
        self.dispatcher = Dispatcher(
            self.book,
            self.room,
            self.counts,
            Wakes(),
            wake_stored_soon=self.heart.store_wakes_soon,
        )
        self.front_door = FrontDoor(
            session, settings.server.api_port, settings.server.worker_metrics_port
        )
        self.stopping = False
        self._inference = Inference(
            self.dispatcher,
            Engines(session, settings.gateway),
            settings.traffic.max_body_bytes,
        )
        self._settings = settings
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        self._tasks = [
            asyncio.create_task(keep_fresh(self.book, self._settings)),
            asyncio.create_task(self.heart.beat_on(self.dispatcher)),
        ]

    async def stop(self) -> None:
        """When no request is left: stop following and beating, and remove our row."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.heart.stop()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path: str = scope["path"]
        if path == "/v1" or path.startswith("/v1/"):
            await self._inference(scope, receive, send)
        elif path in _OWN and scope["method"] in ("GET", "HEAD"):
            await _OWN[path](self, scope, send)
        else:
            await self.front_door(scope, receive, send)

    async def _healthz(self, scope: Scope, send: Send) -> None:
        await _json(scope, send, 200, {"status": "ok"})

    async def _readyz(self, scope: Scope, send: Send) -> None:
        gateway = self.book.loaded and not self.stopping
        api = await self.front_door.api_ready()
        said = {"status": "ok" if gateway and api else "unready", "gateway": gateway, "api": api}
        await _json(scope, send, 200 if gateway and api else 503, said)

    async def _metrics(self, scope: Scope, send: Send) -> None:
        for gauge, counts in (
            (GATEWAY_IN_FLIGHT, self.counts.in_flight()),
            (GATEWAY_WAITING, self.room.held()),
        ):
            gauge.clear()
            for route in self.book.table:
                gauge.labels(route.name).set(0)
            for deployment_id, count in counts.items():
                found = self.book.table.by_id(deployment_id)
                gauge.labels(found.name if found else "").inc(count)
        body = merged([generate_latest().decode(), *await self.front_door.others_metrics()])
        headers = [(b"content-type", CONTENT_TYPE_LATEST.encode())]
        await respond(send, 200, headers, body, head=scope["method"] == "HEAD")


async def _json(scope: Scope, send: Send, status: int, value: object) -> None:
    body = json.dumps(value).encode()
    await respond(send, status, _JSON, body, head=scope["method"] == "HEAD")


_OWN = {
    "/healthz": GatewayApp._healthz,
    "/readyz": GatewayApp._readyz,
    "/metrics": GatewayApp._metrics,
}
