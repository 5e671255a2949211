"""The few things that we need of ASGI, without a framework."""

from __future__ import annotations

import asyncio
import re
import secrets
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from typing import Any, TypeAlias

from controlplane.gateway.answers import Answer, Answered

Scope: TypeAlias = dict[str, Any]
Message: TypeAlias = dict[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
Headers: TypeAlias = Iterable[tuple[bytes, bytes]]

_NOT_IN_IDS = re.compile(r"[^A-Za-z0-9._:/+=-]")
_LONGEST_ID = 128


class Gone(Exception):
    """The client went away."""


def header(scope: Scope, name: bytes) -> bytes | None:
    """The first header called `name` (lower case)."""
    for key, value in scope["headers"]:
        if key == name:
            return bytes(value)
    return None


def request_id(scope: Scope) -> str:
    """The caller's own id for the request, without what could break a log or a header, or a
    fresh one."""
    sent = (header(scope, b"x-request-id") or b"").decode("latin-1")
    return _NOT_IN_IDS.sub("", sent)[:_LONGEST_ID] or secrets.token_hex(16)


async def read_body(scope: Scope, receive: Receive, most: int) -> bytes:
    """The whole body. Raises Answered (413) when it is larger than `most`, before reading it
    where its length is declared; Gone when the client leaves."""
    if int(header(scope, b"content-length") or 0) > most:
        raise Answered(_too_large(most))
    parts, size = [], 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise Gone
        part = message.get("body", b"")
        size += len(part)
        if size > most:
            raise Answered(_too_large(most))
        parts.append(part)
        if not message.get("more_body", False):
            return b"".join(parts)


async def until_gone(receive: Receive, work: Coroutine[Any, Any, None]) -> None:
    """Do `work`, and cancel it as soon as the client goes away: then raises Gone. The body
    must have been read."""
    working = asyncio.ensure_future(work)
    watching = asyncio.ensure_future(_disconnect(receive))
    try:
        await asyncio.wait((working, watching), return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise Gone
        working.result()
    finally:
        watching.cancel()
        working.cancel()
        await asyncio.gather(working, watching, return_exceptions=True)


async def respond(
    send: Send, status: int, headers: Headers, body: bytes, *, head: bool = False
) -> None:
    """A whole answer; with `head`, what a HEAD request gets of it."""
    length = (b"content-length", str(len(body)).encode())
    await send({"type": "http.response.start", "status": status, "headers": [*headers, length]})
    await send({"type": "http.response.body", "body": b"" if head else body})


async def respond_answer(send: Send, answer: Answer, extra: Headers = ()) -> None:
    await respond(send, answer.status, [*answer.headers, *extra], answer.body)


async def _disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _too_large(most: int) -> Answer:
    return Answer(413, "body_too_large", f"A request body may have {most} bytes at most.")
