"""Server-sent events: the form, and what every stream of ours answers with."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import StreamingResponse

from controlplane.api.dependencies import authenticate
from controlplane.errors import AppError, Kind
from controlplane.services.site import Site

HEARTBEAT = 10.0  # seconds; proxies cut what is silent for a minute
STREAM: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "Server-sent events, until the client or the server goes.",
        "content": {"text/event-stream": {"schema": {"type": "string"}}},
    }
}


def event(name: str, data: Mapping[str, Any], *, event_id: str | None = None) -> bytes:
    """One event. JSON keeps `data` on one line, whatever texts it holds."""
    head = f"id: {event_id}\n" if event_id else ""
    return f"{head}event: {name}\ndata: {json.dumps(data)}\n\n".encode()


def comment(text: str) -> bytes:
    """A line that keeps the connection alive and that clients skip."""
    return f": {text}\n\n".encode()


def stream(events: AsyncIterator[bytes]) -> StreamingResponse:
    return StreamingResponse(
        events,
        media_type="text/event-stream",
        headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"},
    )


async def may_stay(request: Request, site: Site) -> bool:
    """False once the caller's key or session has ended: its streams end with it. While the
    database is away nothing can be told, so the stream stays."""
    try:
        await run_in_threadpool(authenticate, request, site)
    except AppError as e:
        return e.kind is Kind.UNAVAILABLE
    return True
