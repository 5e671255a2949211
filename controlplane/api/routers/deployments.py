"""/deployments: make, list, show, change, give up, and the four words that start and stop."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import JSONResponse

from controlplane.api.dependencies import Caller, IdempotencyKey, IfMatch, JsonBody, SiteDep
from controlplane.api.errors import problems
from controlplane.api.faults import LABEL_PART, MODEL_PART, NAME_PART
from controlplane.api.paging import Cursor, Limit, decode_position, encode_position
from controlplane.api.requests import body_of
from controlplane.api.schemas.common import Listing
from controlplane.api.schemas.deployments import Deployment, deployment_json
from controlplane.api.schemas.specs import SpecPatch, SpecRequest
from controlplane.domain.model_refs import parse_model_ref
from controlplane.domain.phases import Desired, Phase
from controlplane.errors import FieldError, Invalid
from controlplane.persistence.deployments import Filters
from controlplane.services import deployments, lifecycle
from controlplane.services.views import View

router = APIRouter(prefix="/deployments", tags=["deployments"])
PATH = "/api/v1/deployments"

_ETAG = {"ETag": {"schema": {"type": "string"}, "description": "The generation, in quotes."}}
_LOCATION = {"Location": {"schema": {"type": "string"}, "description": "Its path."}}


class ListQuery(BaseModel):
    """What a list is narrowed to."""

    model_config = ConfigDict(extra="forbid")

    phase: list[Phase] = Field([], description="Any of these; without, all but deleted ones.")
    desired: Desired | None = None
    tier: str | None = Field(None, pattern=NAME_PART)
    model: str | None = Field(None, max_length=128, pattern=MODEL_PART)
    name: str | None = Field(None, pattern=NAME_PART, description="What the name begins with.")
    label: list[Annotated[str, Field(max_length=127, pattern=LABEL_PART)]] = Field(
        [], description="`key` or `key=value`; all of them.", max_length=32
    )
    limit: Limit = 50
    cursor: Cursor | None = None


@router.post(
    "",
    status_code=201,
    response_model=Deployment,
    responses={201: {"headers": _ETAG | _LOCATION}, **problems(400, 401, 403, 409, 413, 422, 503)},
    openapi_extra=body_of(SpecRequest),
)
def create_deployment(
    site: SiteDep, by: Caller, body: JsonBody, idempotency_key: IdempotencyKey
) -> JSONResponse:
    """Accept a spec. The deployment is queued; watch it go green."""
    view = deployments.create(site, by, body, idempotency_key=idempotency_key)
    return _answer(view, 201, {"Location": f"{PATH}/{view.name}"})


@router.get("", response_model=Listing[Deployment], responses=problems(401, 403, 422, 503))
def list_deployments(
    site: SiteDep, by: Caller, query: Annotated[ListQuery, Query()]
) -> JSONResponse:
    """Newest first. Pages are stable: what is made meanwhile moves nothing."""
    page = deployments.listed(
        site, by, _filters(query), after=decode_position(query.cursor), limit=query.limit
    )
    items = [deployment_json(view) for view in page.items]
    return JSONResponse({"items": items, "next_cursor": encode_position(page.next)})


@router.get(
    "/{ref}",
    response_model=Deployment,
    responses={200: {"headers": _ETAG}, **problems(401, 403, 404, 422, 503)},
)
def get_deployment(site: SiteDep, by: Caller, ref: str) -> JSONResponse:
    """One deployment, by its name or its id; a deleted one by its id only."""
    return _answer(deployments.show(site, by, ref))


@router.patch(
    "/{ref}",
    response_model=Deployment,
    responses={
        200: {"headers": _ETAG},
        **problems(400, 401, 403, 404, 409, 412, 413, 422, 503),
    },
    openapi_extra=body_of(SpecPatch, "application/merge-patch+json", "application/json"),
)
def update_deployment(
    site: SiteDep, by: Caller, ref: str, body: JsonBody, if_match: IfMatch
) -> JSONResponse:
    """Change the spec. What stays the same keeps its generation, and its engines."""
    return _answer(deployments.update(site, by, ref, body, if_match=if_match))


_ACCEPTED: dict[str, Any] = {
    "status_code": 202,
    "response_model": Deployment,
    "responses": {202: {"headers": _ETAG}, **problems(401, 403, 404, 409, 422, 503)},
}


@router.delete("/{ref}", **_ACCEPTED)
def delete_deployment(site: SiteDep, by: Caller, ref: str) -> JSONResponse:
    """Requests in flight finish, then everything of it goes and the name is free."""
    return _answer(deployments.delete(site, by, ref), 202)


@router.post("/{ref}/pause", **_ACCEPTED)
def pause_deployment(site: SiteDep, by: Caller, ref: str) -> JSONResponse:
    """Stop it; only a person starts it again."""
    return _answer(lifecycle.pause(site, by, ref), 202)


@router.post("/{ref}/resume", **_ACCEPTED)
def resume_deployment(site: SiteDep, by: Caller, ref: str) -> JSONResponse:
    """Let a paused one run again; of a failed one, try again now."""
    return _answer(lifecycle.resume(site, by, ref), 202)


@router.post("/{ref}/sleep", **_ACCEPTED)
def sleep_deployment(site: SiteDep, by: Caller, ref: str) -> JSONResponse:
    """Put it to sleep now; the next request wakes it."""
    return _answer(lifecycle.sleep(site, by, ref), 202)


@router.post("/{ref}/wake", **_ACCEPTED)
def wake_deployment(site: SiteDep, by: Caller, ref: str) -> JSONResponse:
    """Wake it, as a request would."""
    return _answer(lifecycle.wake(site, by, ref), 202)


def _answer(view: View, status: int = 200, headers: dict[str, str] | None = None) -> JSONResponse:
    etag = {"ETag": f'"{view.generation}"'}
    return JSONResponse(deployment_json(view), status, headers=etag | (headers or {}))


def _filters(query: ListQuery) -> Filters:
    labels: dict[str, str | None] = {}
    for text in query.label:
        key, equals, value = text.partition("=")
        labels[key] = value if equals else None
    return Filters(
        phases=tuple(query.phase),
        desired=query.desired,
        tier=query.tier,
        model=_model(query.model),
        name_prefix=query.name,
        labels=labels,
    )


def _model(text: str | None) -> str | None:
    try:
        return None if text is None else str(parse_model_ref(text))
    except ValueError as e:
        raise Invalid(
            "invalid_parameter",
            f"The parameter model is wrong: {e}",
            fields=(FieldError("model", "form", str(e)),),
        ) from e
