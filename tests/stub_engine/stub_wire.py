"""As much of HTTP/1.1 as the stub needs, on bare asyncio streams."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any


class Gone(Exception):
    """The client went away."""


@dataclass
class Request:
    method: str
    path: str
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


class Reply:
    """One answer. Exactly one of `json`, `text` or `begin` ... `end` is used."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self.status = 0

    def _head(self, status: int, *headers: str) -> bytes:
        self.status = status
        lines = [f"HTTP/1.1 {status} {HTTPStatus(status).phrase}", "server: uvicorn", *headers]
        return ("\r\n".join(lines) + "\r\n\r\n").encode()

    async def text(self, status: int, text: str, kind: str = "text/plain; charset=utf-8") -> None:
        data = text.encode()
        head = self._head(status, f"content-type: {kind}", f"content-length: {len(data)}")
        await self._write(head + data)

    async def json(self, status: int, value: Any) -> None:
        await self.text(status, json.dumps(value), "application/json")

    async def begin(self) -> None:
        await self._write(
            self._head(
                200, "content-type: text/event-stream; charset=utf-8", "transfer-encoding: chunked"
            )
        )

    async def send(self, data: bytes) -> None:
        """One chunk. Raises Gone when the client has left."""
        await self._write(b"%x\r\n%b\r\n" % (len(data), data))

    async def event(self, value: Any) -> None:
        text = value if isinstance(value, str) else json.dumps(value)
        await self.send(f"data: {text}\n\n".encode())

    async def end(self) -> None:
        await self._write(b"0\r\n\r\n")

    async def _write(self, data: bytes) -> None:
        if self.client_left():
            raise Gone
        try:
            self._writer.write(data)
            await self._writer.drain()
        except ConnectionError as e:
            raise Gone from e

    def client_left(self) -> bool:
        return self._writer.is_closing() or self._reader.at_eof()


Handler = Callable[[Request, Reply], Awaitable[None]]


async def serve_connection(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, handler: Handler
) -> None:
    """All requests of one connection, one after the other."""
    try:
        while (request := await _read(reader)) is not None:
            reply = Reply(reader, writer)
            await handler(request, reply)
            peer = writer.get_extra_info("peername") or ("-", 0)
            line = f'{peer[0]}:{peer[1]} - "{request.method} {request.path} HTTP/1.1"'
            status = reply.status or 500
            print(f"INFO:     {line} {status} {HTTPStatus(status).phrase}", flush=True)
            if request.headers.get("connection", "").lower() == "close":
                return
    except (Gone, ConnectionError, asyncio.IncompleteReadError, ValueError):
        return
    finally:
        writer.close()


async def _read(reader: asyncio.StreamReader) -> Request | None:
    head = await reader.readuntil(b"\r\n\r\n")
    first, *rest = head.decode("latin-1").rstrip("\r\n").split("\r\n")
    method, target, _ = first.split(" ", 2)
    headers = {k.strip().lower(): v.strip() for k, v in (line.split(":", 1) for line in rest)}
    body = b""
    if headers.get("transfer-encoding", "").lower() == "chunked":
        while size := int((await reader.readuntil(b"\r\n")).split(b";")[0], 16):
            body += (await reader.readexactly(size + 2))[:-2]
        await reader.readuntil(b"\r\n")
    elif length := int(headers.get("content-length", "0")):
        body = await reader.readexactly(length)
    return Request(method, target.split("?", 1)[0], headers, body)
