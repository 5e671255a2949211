"""The tiers that may be asked for: configured ones, and what this machine really has."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from controlplane.auth.principals import Action, Principal
from controlplane.domain.tiers import Tier, found_tiers, here, merge
from controlplane.services.site import Site


@dataclass(frozen=True, slots=True)
class Offer:
    """A tier. `here` is whether this machine can hold one replica of it; None where a
    scheduler elsewhere decides."""

    tier: Tier
    here: bool | None


@dataclass(frozen=True, slots=True)
class Catalogue:
    """Every tier by name, and the one that a spec without a tier gets (None: it must say)."""

    offers: Mapping[str, Offer]
    default: str | None

    @property
    def names_here(self) -> list[str]:
        return [name for name, offer in self.offers.items() if offer.here is not False]


def catalogue(site: Site) -> Catalogue:
    """The tiers of this installation, those of its own devices among them."""
    if site.find_devices is None:
        return Catalogue({t.name: Offer(t, None) for t in site.settings.tiers}, None)
    devices = site.find_devices()
    found = found_tiers(devices)
    tiers = merge(found, site.settings.tiers)
    offers = {t.name: Offer(t, here(t, devices)) for t in tiers.values()}
    default = next((t.name for t in found if offers[t.name].here), None)
    return Catalogue(offers, default)


def listed(site: Site, by: Principal) -> Catalogue:
    by.require(Action.READ)
    return catalogue(site)
