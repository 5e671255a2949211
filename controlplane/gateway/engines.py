"""Moving bytes to and from engines, over pooled connections. What may be sent again and what
not is told by the type of the error."""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass

import aiohttp
from yarl import URL

from controlplane.settings import Gateway

# Engines close idle connections after 5 s; ours are gone before, so none is used as it closes.
_CHUNK_BYTES = 65_536


class NothingAccepted(Exception):
    """No engine took the request: it may be sent again."""


class _Cut(Exception):
    """`silent`: the connection stands, and nothing came for too long."""

    def __init__(self, *, silent: bool = False) -> None:
        super().__init__("silent" if silent else "lost")
        self.silent = silent


class EngineLost(_Cut):
    """The request was sent and no byte of an answer came. It must not be sent again."""


class Broken(_Cut):
    """The answer ended before its end."""


def client_session() -> aiohttp.ClientSession:
    """Passes everything as it is: no redirects followed, no cookies kept, no proxy asked,
    nothing unpacked, no header added."""
    return aiohttp.ClientSession(
        # A connection for each request: on a kept one that the other side has just closed, nobody
        # can tell whether a request was accepted; a refused connection leaves no doubt.
        connector=aiohttp.TCPConnector(limit=0, force_close=True),
        cookie_jar=aiohttp.DummyCookieJar(),
        auto_decompress=False,
        timeout=aiohttp.ClientTimeout(total=None),
        skip_auto_headers=("User-Agent", "Accept", "Accept-Encoding", "Content-Type"),
        read_bufsize=_CHUNK_BYTES,
        max_field_size=65_536,
    )


@dataclass(frozen=True, slots=True)
class Reply:
    """An engine's answer whose head has come."""

    status: int
    content_type: str
    content_length: int | None
    _response: aiohttp.ClientResponse
    _between_chunks: float

    @property
    def is_stream(self) -> bool:
        return self.content_type.startswith("text/event-stream")

    async def chunks(self) -> AsyncIterator[bytes]:
        """The body as it comes, nothing waited for. Raises Broken."""
        stream = self._response.content
        try:
            while True:
                async with asyncio.timeout(self._between_chunks):
                    chunk = await stream.readany()
                if not chunk:
                    return
                yield chunk
        except TimeoutError as e:
            raise Broken(silent=True) from e
        except (aiohttp.ClientError, OSError) as e:
            raise Broken from e


class Engines:
    def __init__(self, session: aiohttp.ClientSession, limits: Gateway) -> None:
        self._session, self._limits = session, limits

    @asynccontextmanager
    async def send(
        self, endpoint: str, path: str, body: bytes, headers: Mapping[str, str]
    ) -> AsyncIterator[Reply]:
        """POST `body` and yield the answer; leaving before its end closes the connection, so
        that the engine stops working on it. Raises NothingAccepted or EngineLost."""
        response = await self._head(URL(endpoint + path, encoded=True), body, headers)
        try:
            yield Reply(
                status=response.status,
                content_type=response.headers.get("Content-Type", ""),
                content_length=response.content_length,
                _response=response,
                _between_chunks=self._limits.between_chunks,
            )
        finally:
            response.close()

    async def _head(
        self, url: URL, body: bytes, headers: Mapping[str, str]
    ) -> aiohttp.ClientResponse:
        # Large bodies are written in parts, so that none holds the loop up.
        data = body if len(body) <= _CHUNK_BYTES else io.BytesIO(body)
        connecting = aiohttp.ClientTimeout(total=None, sock_connect=self._limits.connect)
        try:
            async with asyncio.timeout(self._limits.first_byte):
                response = await self._session.post(
                    url, data=data, headers=headers, allow_redirects=False, timeout=connecting
                )
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as e:
            raise NothingAccepted from e
        except TimeoutError as e:
            raise EngineLost(silent=True) from e
        except (aiohttp.ClientError, OSError) as e:
            raise EngineLost from e
        if response.status == 401:
            # The port belongs to another engine by now, whose key is another.
            response.close()
            raise NothingAccepted
        return response
