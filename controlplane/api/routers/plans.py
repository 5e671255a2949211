"""/plans: what a spec would become. Nothing is created."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.responses import JSONResponse

from controlplane.api.dependencies import Caller, JsonBody, SiteDep
from controlplane.api.errors import problems
from controlplane.api.requests import body_of
from controlplane.api.routers.tiers import tier_of
from controlplane.api.schemas.deployments import Command, Manifest
from controlplane.api.schemas.others import Finding, Plan
from controlplane.api.schemas.specs import PlanRequest
from controlplane.services import plans
from controlplane.services.tiers import Offer, catalogue

router = APIRouter(tags=["plans"])


@router.post(
    "/plans",
    response_model=Plan,
    responses=problems(400, 401, 403, 413, 422, 503),
    openapi_extra=body_of(PlanRequest),
)
def make_plan(site: SiteDep, by: Caller, body: JsonBody) -> JSONResponse:
    """Command, tier and findings of a spec; what isn't known yet is null."""
    found = plans.plan(site, by, body)
    shown = found.command
    command = Command.model_validate(shown, from_attributes=True) if shown else None
    tier = tier_of(Offer(found.tier, found.here), catalogue(site).default)
    plan = {
        "spec": dict(found.spec),
        "tier": tier.model_dump(mode="json"),
        "profile": None,
        "fit": None,
        "findings": [
            Finding.model_validate(f, from_attributes=True).model_dump() for f in found.findings
        ],
        "cost": None,
        "speedup": None,
        "command": command.model_dump() if command else None,
        "manifest": Manifest(kind="command", command=command).model_dump() if command else None,
    }
    return JSONResponse(plan)
