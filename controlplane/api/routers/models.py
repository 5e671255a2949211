"""/models: what is here without a hub."""

from __future__ import annotations

from fastapi import APIRouter, Response

from controlplane.api.dependencies import Caller, JsonBody, SiteDep
from controlplane.api.errors import problems
from controlplane.api.requests import body_of, read_request
from controlplane.api.schemas.common import Listing
from controlplane.api.schemas.others import LocalModel, LocalModelRequest
from controlplane.services import models
from controlplane.services.models import LocalModelView

router = APIRouter(prefix="/models", tags=["models"])


@router.get("", responses=problems(401, 403, 503))
def list_models(site: SiteDep, by: Caller) -> Listing[LocalModel]:
    """The demo models, and the folders that an admin registered."""
    return Listing(items=[_model(m) for m in models.listed(site, by)], next_cursor=None)


@router.post(
    "",
    status_code=201,
    responses=problems(400, 401, 403, 409, 413, 422, 503),
    openapi_extra=body_of(LocalModelRequest),
)
def register_model(site: SiteDep, by: Caller, body: JsonBody) -> LocalModel:
    """Register a folder of the server's machine as `local/NAME`; nothing is copied."""
    asked = read_request(LocalModelRequest, _bare(body))
    return _model(models.register(site, by, name=asked.name, path=asked.path))


@router.delete(
    "/{name:path}",
    status_code=204,
    response_class=Response,
    responses=problems(401, 403, 404, 409, 422, 503),
)
def remove_model(site: SiteDep, by: Caller, name: str) -> None:
    """Forget a registered model, as `NAME` or `local/NAME`. Its folder stays."""
    models.remove(site, by, name)


def _bare(body: object) -> object:
    """`local/NAME` is taken for NAME, as it is written everywhere else."""
    if isinstance(body, dict) and isinstance(body.get("name"), str):
        return {**body, "name": body["name"].removeprefix("local/")}
    return body


def _model(view: LocalModelView) -> LocalModel:
    return LocalModel.model_validate(view, from_attributes=True)
