"""/keys: API keys of the caller's workspace, for admins."""

from __future__ import annotations

from fastapi import APIRouter, Response

from controlplane.api.dependencies import Caller, JsonBody, SiteDep
from controlplane.api.errors import problems
from controlplane.api.requests import body_of, read_duration, read_request
from controlplane.api.schemas.common import Listing
from controlplane.api.schemas.others import Key, KeyRequest, NewKey
from controlplane.persistence.tables import ApiKey
from controlplane.services import keys

router = APIRouter(prefix="/keys", tags=["keys"])


@router.get("", responses=problems(401, 403, 503))
def list_keys(site: SiteDep, by: Caller) -> Listing[Key]:
    """Every key, revoked ones too; never the key itself."""
    items = [Key(**_shown(row)) for row in keys.listed(site, by)]
    return Listing(items=items, next_cursor=None)


@router.post(
    "",
    status_code=201,
    responses=problems(400, 401, 403, 413, 422, 503),
    openapi_extra=body_of(KeyRequest),
)
def create_key(site: SiteDep, by: Caller, body: JsonBody) -> NewKey:
    """Make a key. It is shown in this answer and never again."""
    asked = read_request(KeyRequest, body)
    expires_in = read_duration("expires_in", asked.expires_in)
    made = keys.create(site, by, name=asked.name, role=asked.role, expires_in=expires_in)
    return NewKey(**_shown(made.row), key=made.text)


@router.delete(
    "/{key_id}",
    status_code=204,
    response_class=Response,
    responses=problems(401, 403, 404, 409, 422, 503),
)
def revoke_key(site: SiteDep, by: Caller, key_id: str) -> None:
    """Revoke a key for good. Every call with it is refused from now on."""
    keys.revoke(site, by, key_id)


def _shown(row: ApiKey) -> dict[str, object]:
    ours = not row.lookup.startswith("x-")
    return {
        "id": row.id,
        "name": row.name,
        "role": row.role,
        "prefix": f"sl_{row.lookup}" if ours else "",
        "created_at": row.created_at,
        "expires_at": row.expires_at,
        "revoked_at": row.revoked_at,
    }
