"""/deployments/{ref}/...: what happened to one, what its engines say and how they are run."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from dataclasses import asdict
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from pydantic import BaseModel, ConfigDict, Field
from starlette.concurrency import run_in_threadpool
from starlette.responses import JSONResponse, Response

from controlplane.api import sse
from controlplane.api.dependencies import Caller, SiteDep
from controlplane.api.errors import problems
from controlplane.api.paging import Cursor, Limit, decode_number, encode_number
from controlplane.api.schemas.common import Listing
from controlplane.api.schemas.deployments import (
    Command,
    DeploymentMetrics,
    Event,
    LogLine,
    Manifest,
)
from controlplane.errors import AppError
from controlplane.services import events, logs, metrics, plans
from controlplane.services.logs import MOST_LINES, Follower
from controlplane.services.site import Site

router = APIRouter(prefix="/deployments/{ref}", tags=["deployments"])
_POLL = 0.25  # seconds between looks at a log file that is followed


class EventsQuery(BaseModel):
    model_config = ConfigDict(extra="forbid")

    limit: Limit = 50
    cursor: Cursor | None = None


class LogsQuery(BaseModel):
    model_config = ConfigDict(extra="forbid")

    lines: int = Field(200, ge=0, le=MOST_LINES, description="How many of the last ones.")
    follow: bool = Field(False, description="Stay, and send what comes as server-sent events.")


@router.get("/events", responses=problems(401, 403, 404, 422, 503))
def list_events(
    site: SiteDep, by: Caller, ref: str, query: Annotated[EventsQuery, Query()]
) -> Listing[Event]:
    """What happened, newest first. A deleted deployment's record is found by its id."""
    before = decode_number(query.cursor)
    page = events.listed(site, by, ref, before=before, limit=query.limit)
    items = [Event.model_validate(row, from_attributes=True) for row in page.items]
    return Listing(items=items, next_cursor=encode_number(page.next))


_LOGS: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "The last lines; with `follow`, events `line` as they come.",
        "content": {"text/event-stream": {"schema": {"type": "string"}}},
    }
}


@router.get(
    "/logs",
    response_model=Listing[LogLine],
    responses={**_LOGS, **problems(401, 403, 404, 422, 503)},
)
async def read_logs(
    request: Request, site: SiteDep, by: Caller, ref: str, query: Annotated[LogsQuery, Query()]
) -> Response:
    """The engines' own words, oldest first; while weights are fetched, the download's."""
    if query.follow:
        follower = await run_in_threadpool(Follower, site, by, ref, query.lines)
        return sse.stream(_follow(request, site, follower))
    found = await run_in_threadpool(logs.tail, site, by, ref, query.lines)
    return JSONResponse({"items": [asdict(line) for line in found], "next_cursor": None})


@router.get("/metrics", responses=problems(401, 403, 404, 422, 503))
def get_metrics(site: SiteDep, by: Caller, ref: str) -> DeploymentMetrics:
    """Traffic by the gateways, and the engines' own counts, asked now."""
    return DeploymentMetrics.model_validate(metrics.read(site, by, ref), from_attributes=True)


@router.get("/manifest", responses=problems(401, 403, 404, 409, 422, 503))
def get_manifest(site: SiteDep, by: Caller, ref: str) -> Manifest:
    """The exact command line of its engines. No secret is in it."""
    shown = plans.manifest(site, by, ref)
    return Manifest(kind="command", command=Command.model_validate(shown, from_attributes=True))


async def _follow(request: Request, site: Site, follower: Follower) -> AsyncIterator[bytes]:
    hub = request.app.state.changes
    looked = time.monotonic()
    try:
        yield sse.comment("following")
        while not hub.closing.is_set():
            for line in await run_in_threadpool(follower.poll):
                yield sse.event("line", asdict(line))
            if time.monotonic() - looked >= sse.HEARTBEAT:
                looked = time.monotonic()
                yield sse.comment("alive")
                if not await sse.may_stay(request, site) or await _ended(follower):
                    yield sse.event("end", {})
                    return
            await asyncio.sleep(_POLL)
    finally:
        follower.close()


async def _ended(follower: Follower) -> bool:
    """While nothing can be told, it goes on."""
    try:
        return await run_in_threadpool(follower.ended)
    except AppError:
        return False
