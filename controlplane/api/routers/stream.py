"""/stream: every change that the caller may see, as it happens."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from datetime import datetime

from fastapi import APIRouter, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response, StreamingResponse

from controlplane.api import sse
from controlplane.api.changes import ChangeHub, Reader
from controlplane.api.dependencies import Caller, SiteDep
from controlplane.api.errors import problems
from controlplane.api.schemas.common import moment, moment_or_none
from controlplane.api.schemas.deployments import deployment_json
from controlplane.auth.principals import Action, Principal
from controlplane.errors import Unavailable
from controlplane.services import changes
from controlplane.services.site import Site
from controlplane.services.views import View

router = APIRouter(tags=["stream"])
_RETRY = 1.0  # seconds until a snapshot that could not be read is tried again


@router.get(
    "/stream",
    response_class=StreamingResponse,
    responses={**sse.STREAM, **problems(401, 403, 422, 503)},
)
async def stream_changes(request: Request, site: SiteDep, by: Caller) -> Response:
    """Events: `snapshot` (`{"items", "as_of"}`, first and whenever something may have been
    missed), `deployment` (one deployment as it is now), `alive` (`{"as_of"}`: how fresh this
    is; null while the database is away). After a break, connect again: a fresh snapshot comes,
    whatever `Last-Event-ID` says."""
    by.require(Action.READ)
    hub = request.app.state.changes
    return sse.stream(_changes(request, site, by, hub))


async def _changes(
    request: Request, site: Site, by: Principal, hub: ChangeHub
) -> AsyncIterator[bytes]:
    reader = hub.join(by.workspace)
    sent: dict[str, datetime] = {}
    looked = time.monotonic()
    try:
        while not hub.closing.is_set():
            if reader.stale:
                views = await _snapshot(site, by, reader)
                if views is not None:
                    sent = {view.id: view.updated_at for view in views}
                    yield _snapshot_event(views, hub)
            for view in reader.take():
                if view.updated_at >= sent.get(view.id, view.updated_at):
                    sent[view.id] = view.updated_at
                    yield sse.event(
                        "deployment", deployment_json(view), event_id=moment(view.updated_at)
                    )
            if time.monotonic() - looked >= sse.HEARTBEAT:
                looked = time.monotonic()
                if not await sse.may_stay(request, site):
                    yield sse.event("end", {})
                    return
                yield sse.event("alive", {"as_of": moment_or_none(hub.as_of)})
            await _wait(reader)
    finally:
        hub.leave(reader)


def _snapshot_event(views: list[View], hub: ChangeHub) -> bytes:
    as_of = moment_or_none(hub.as_of)
    items = [deployment_json(view) for view in views]
    return sse.event("snapshot", {"items": items, "as_of": as_of}, event_id=as_of)


async def _snapshot(site: Site, by: Principal, reader: Reader) -> list[View] | None:
    """Everything as it is now; None, and the reader stays stale, while it can't be read."""
    reader.stale = False
    try:
        return await run_in_threadpool(changes.snapshot, site, by)
    except Unavailable:
        reader.stale = True
        return None


async def _wait(reader: Reader) -> None:
    """Until there is news, or it is time for a look around."""
    limit = _RETRY if reader.stale else sse.HEARTBEAT
    try:
        async with asyncio.timeout(limit):
            await reader.news.wait()
    except TimeoutError:
        return
