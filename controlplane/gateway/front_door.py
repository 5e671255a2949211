"""Passing everything that isn't ours to the api process, streams included, both ways."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator

import aiohttp
from multidict import CIMultiDict
from yarl import URL

from controlplane.gateway.asgi import Gone, Receive, Scope, Send, respond, until_gone
from controlplane.telemetry import logger

_HOP_BY_HOP = frozenset(
    (
        "connection",
        "expect",
        "keep-alive",
        "proxy-authenticate",
        "proxy-authorization",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    )
)
# What we say of the client ourselves; what a client says of itself is not passed on.
_OURS = frozenset(("forwarded", "x-forwarded-for", "x-forwarded-host", "x-forwarded-proto"))
_CONNECTING = aiohttp.ClientTimeout(total=None, sock_connect=2.0)
_log = logger("gateway")


class FrontDoor:
    """`worker_metrics_port` 0: the worker tells its metrics elsewhere, or not at all."""

    def __init__(
        self, session: aiohttp.ClientSession, api_port: int, worker_metrics_port: int = 0
    ) -> None:
        self._session, self._api = session, f"http://127.0.0.1:{api_port}"
        self._tellers = [f"{self._api}/metrics"]
        if worker_metrics_port:
            self._tellers.append(f"http://127.0.0.1:{worker_metrics_port}/metrics")
        self._streams: set[aiohttp.ClientResponse] = set()
        self._closing = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            first = await receive()
            if first["type"] == "http.disconnect":
                return
            if not first.get("more_body", False):
                body = first.get("body", b"")
                await until_gone(receive, self._pass(scope, body, send))
            else:
                await self._pass(scope, _rest(first, receive), send)
        except Gone:
            return

    async def api_ready(self) -> bool:
        """What the api process says of itself."""
        limit = aiohttp.ClientTimeout(total=2.0)
        try:
            async with self._session.get(f"{self._api}/readyz", timeout=limit) as answer:
                return answer.status == 200
        except (aiohttp.ClientError, OSError, TimeoutError):
            return False

    async def others_metrics(self) -> list[str]:
        """The pages of metrics of the processes behind us that answer now."""
        pages = await asyncio.gather(*map(self._page, self._tellers))
        return [page for page in pages if page is not None]

    async def _page(self, url: str) -> str | None:
        try:
            async with self._session.get(url, timeout=aiohttp.ClientTimeout(total=2.0)) as answer:
                return await answer.text() if answer.status == 200 else None
        except (aiohttp.ClientError, OSError, TimeoutError):
            return None

    def close_streams(self) -> None:
        """End every event stream cleanly: they have no end of their own to wait for."""
        self._closing = True
        for stream in list(self._streams):
            stream.close()

    async def _pass(self, scope: Scope, body: bytes | AsyncIterator[bytes], send: Send) -> None:
        url = URL(self._api + _target(scope), encoded=True)
        try:
            response = await self._session.request(
                scope["method"],
                url,
                headers=_request_headers(scope),
                data=body or None,
                allow_redirects=False,
                timeout=_CONNECTING,
            )
        except (aiohttp.ClientError, OSError) as e:
            _log.warning("api_unreachable", error=type(e).__name__)
            await _unreachable(send, head=scope["method"] == "HEAD")
            return
        try:
            await self._relay(response, send)
        finally:
            self._streams.discard(response)
            response.close()

    async def _relay(self, response: aiohttp.ClientResponse, send: Send) -> None:
        headers = _passed(response.raw_headers)
        await send({"type": "http.response.start", "status": response.status, "headers": headers})
        is_stream = response.headers.get("Content-Type", "").startswith("text/event-stream")
        if is_stream and not self._closing:
            self._streams.add(response)
        try:
            async for chunk in response.content.iter_any():
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
        except (aiohttp.ClientError, OSError) as e:
            if not (is_stream and self._closing):
                _log.warning("api_answer_broken", error=type(e).__name__)
            if not is_stream:
                return  # the server closes the connection: less came than was announced
        await send({"type": "http.response.body", "body": b""})


async def _rest(first: dict[str, object], receive: Receive) -> AsyncIterator[bytes]:
    message = first
    while True:
        if message["type"] == "http.disconnect":
            raise Gone
        part = message.get("body", b"")
        if isinstance(part, bytes) and part:
            yield part
        if not message.get("more_body", False):
            return
        message = await receive()


def _target(scope: Scope) -> str:
    """Path and query exactly as the client wrote them."""
    path = scope.get("raw_path") or scope["path"].encode()
    query = scope["query_string"]
    return str((path + (b"?" + query if query else b"")).decode("latin-1"))


def _request_headers(scope: Scope) -> CIMultiDict[str]:
    passed: CIMultiDict[str] = CIMultiDict()
    host = ""
    for name, value in _passed(scope["headers"]):
        key, text = name.decode("latin-1"), value.decode("latin-1")
        if key == "host":
            host = text
        if key not in _OURS:
            passed.add(key, text)
    client = scope.get("client")
    if client:
        passed["X-Forwarded-For"] = str(client[0])
    passed["X-Forwarded-Proto"] = scope["scheme"]
    if host:
        passed["X-Forwarded-Host"] = host
    return passed


def _passed(headers: object) -> list[tuple[bytes, bytes]]:
    """All headers but those that belong to one connection, those that it names included."""
    pairs = [(bytes(k), bytes(v)) for k, v in headers]  # type: ignore[attr-defined]
    named = {
        token.strip().lower()
        for k, v in pairs
        if k.lower() == b"connection"
        for token in v.decode("latin-1").split(",")
    }
    drop = _HOP_BY_HOP | named
    return [(k, v) for k, v in pairs if k.decode("latin-1").lower() not in drop]


async def _unreachable(send: Send, *, head: bool) -> None:
    problem = {
        "type": "about:blank",
        "title": "Service Unavailable",
        "status": 503,
        "code": "api_unreachable",
        "detail": "The API does not answer at the moment.",
        "hint": "It is started again by itself; slipstream doctor names the part that is dead.",
        "errors": [],
    }
    headers = [(b"content-type", b"application/problem+json"), (b"retry-after", b"2")]
    await respond(send, 503, headers, json.dumps(problem).encode(), head=head)
