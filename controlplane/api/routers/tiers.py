"""/tiers: the hardware that may be asked for."""

from __future__ import annotations

from fastapi import APIRouter

from controlplane.api.dependencies import Caller, SiteDep
from controlplane.api.errors import problems
from controlplane.api.schemas.common import Listing
from controlplane.api.schemas.others import Tier
from controlplane.services import tiers
from controlplane.services.tiers import Offer

router = APIRouter(tags=["tiers"])


@router.get("/tiers", responses=problems(401, 403, 503))
def list_tiers(site: SiteDep, by: Caller) -> Listing[Tier]:
    """Configured tiers and, on one machine, what was really found there."""
    found = tiers.listed(site, by)
    items = [tier_of(offer, found.default) for offer in found.offers.values()]
    return Listing(items=items, next_cursor=None)


def tier_of(offer: Offer, default: str | None) -> Tier:
    tier = offer.tier
    return Tier(
        name=tier.name,
        device=tier.device,
        gpu=tier.gpu,
        count=tier.count,
        memory_bytes=tier.memory_bytes,
        bandwidth=tier.bandwidth,
        price_hour=tier.price_hour,
        kv_cache_gib=tier.kv_cache_gib,
        description=tier.description,
        here=offer.here,
        default=tier.name == default,
    )
