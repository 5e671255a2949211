"""Who is calling, and whether everything lives: /me, /health and the three plain paths."""

from __future__ import annotations

from fastapi import APIRouter, Response
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from controlplane.api.dependencies import Caller, SiteDep
from controlplane.api.errors import problems
from controlplane.api.schemas.others import Alive, Health, KeyId, Me, Part
from controlplane.auth.principals import MAY, Action
from controlplane.services import health
from controlplane.services.site import database_unavailable

router = APIRouter(tags=["system"])
plain = APIRouter(tags=["system"])


@router.get("/me", responses=problems(401, 403, 503))
def who_am_i(by: Caller) -> Me:
    """The caller's workspace, role and key, and what that role may do."""
    allowed = [action for action in Action if action in MAY[by.role]]
    key = KeyId(id=by.key_id, name=by.key_name)
    return Me(workspace=by.workspace, role=by.role, key=key, may=allowed)


@router.get("/health", responses=problems(401, 403, 503))
def get_health(site: SiteDep, by: Caller) -> Health:
    """Each part that the whole system needs, with the age of its last proof of life."""
    parts = [
        Part(name=p.name, ok=p.ok, age_seconds=p.age, detail=p.detail, hint=p.hint)
        for p in health.check(site, by)
    ]
    return Health(status="ok" if all(p.ok for p in parts) else "degraded", parts=parts)


@plain.get("/healthz", responses=problems())
async def is_alive() -> Alive:
    """This process lives."""
    return Alive(status="ok")


@plain.get("/readyz", responses=problems(503))
def is_ready(site: SiteDep) -> Alive:
    """This process can serve: its database answers."""
    if not health.database_answers(site):
        raise database_unavailable()
    return Alive(status="ok")


@plain.get(
    "/metrics",
    response_class=Response,
    responses={
        200: {
            "description": "Prometheus text.",
            "content": {"text/plain": {"schema": {"type": "string"}}},
        },
        **problems(),
    },
)
def get_process_metrics() -> Response:
    """This process's metrics."""
    return Response(generate_latest(), headers={"Content-Type": CONTENT_TYPE_LATEST})
