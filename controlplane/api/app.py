"""The REST application, put together."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from http import HTTPStatus
from typing import Any

import anyio
import anyio.to_thread
from fastapi import APIRouter, FastAPI
from fastapi.openapi.utils import get_openapi
from fastapi.routing import APIRoute
from pydantic.json_schema import models_json_schema
from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from controlplane.api import errors
from controlplane.api.changes import ChangeHub
from controlplane.api.pages import POLICY
from controlplane.api.requests import request_schemas
from controlplane.api.routers import (
    deployment_views,
    deployments,
    docs,
    keys,
    models,
    plans,
    sign_in,
    stream,
    system,
    tiers,
)
from controlplane.api.schemas.common import Problem
from controlplane.services.site import Site

VERSION = "0.1.0"
PREFIX = "/api/v1"
_THREADS = 16  # calls at once; each holds at most one of the pool's ten connections
_HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}
_DESCRIPTION = (
    "Dedicated LLM deployments on your own GPUs, with a draft model running ahead. "
    "A spec goes in; watch the deployment go from yellow to green; talk to it under /v1."
)


def create_app(site: Site | None) -> FastAPI:
    """The application over `site`. Without one it can only describe itself."""
    app = FastAPI(
        title="Slipstream",
        version=VERSION,
        description=_DESCRIPTION,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        lifespan=_lifespan,
        generate_unique_id_function=_operation_id,
    )
    app.state.site = site
    if site is not None:
        app.state.changes = ChangeHub(site)
    errors.install(app)
    app.add_middleware(Envelope)
    api = APIRouter(prefix=PREFIX)
    for room in (
        deployments,
        deployment_views,
        plans,
        tiers,
        models,
        keys,
        sign_in,
        stream,
        system,
    ):
        api.include_router(room.router)
    app.include_router(api)
    for plain in (sign_in.plain, system.plain, docs.router):
        app.include_router(plain)
    app.openapi = lambda: _document(app)  # type: ignore[method-assign]
    return app


@contextlib.asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    anyio.to_thread.current_default_thread_limiter().total_tokens = _THREADS
    hub: ChangeHub = app.state.changes
    async with anyio.create_task_group() as listening:
        listening.start_soon(hub.run)
        try:
            yield
        finally:
            hub.close()
            listening.cancel_scope.cancel()  # what a thread still loads is waited for
    app.state.site.engine.dispose()


class Envelope:
    """What every answer carries: headers that keep a browser from guessing, framing, or
    telling others where it was; and an end of the connection where a body that may be endless
    was not read to its end. Streams pass through as they come."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        unread = b"transfer-encoding" in dict(scope["headers"])

        async def receive_noting() -> Message:
            nonlocal unread
            message = await receive()
            if message["type"] == "http.request" and not message.get("more_body", False):
                unread = False
            return message

        async def send_with(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers.setdefault(name, value)
                if unread or message["status"] == HTTPStatus.REQUEST_ENTITY_TOO_LARGE:
                    headers["Connection"] = "close"
            await send(message)

        await self._app(scope, receive_noting, send_with)


def _operation_id(route: APIRoute) -> str:
    return route.name


def _document(app: FastAPI) -> dict[str, Any]:
    """The OpenAPI document, with the schemas of bodies and errors added to those that the
    framework finds by itself."""
    if app.openapi_schema is None:
        made = get_openapi(
            title=app.title, version=app.version, description=app.description, routes=app.routes
        )
        _, problem = models_json_schema(
            [(Problem, "validation")], ref_template="#/components/schemas/{model}"
        )
        schemas = made.setdefault("components", {}).setdefault("schemas", {})
        for unused in ("HTTPValidationError", "ValidationError"):
            schemas.pop(unused, None)
        schemas |= {**problem["$defs"], **request_schemas()}
        made["components"]["schemas"] = dict(sorted(schemas.items()))
        app.openapi_schema = made
    return app.openapi_schema
