"""The tiers that may be asked for: configured ones, and what this machine really has."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from controlplane.auth.principals import Action, Principal
from controlplane.domain.tiers import Device, Tier, found_tiers, here, merge
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
    devices = None if site.find_devices is None else site.find_devices()
    return catalogue_of(site.settings.tiers, devices)


def catalogue_of(configured: Iterable[Tier], devices: tuple[Device, ...] | None) -> Catalogue:
    """What `configured` and a machine's `devices` make; None: a scheduler elsewhere decides."""
    if devices is None:
        return Catalogue({t.name: Offer(t, None) for t in configured}, None)
    found = found_tiers(devices)
    offers = {t.name: Offer(t, here(t, devices)) for t in merge(found, configured).values()}
    default = next((t.name for t in found if offers[t.name].here), None)
    return Catalogue(offers, default)


def listed(site: Site, by: Principal) -> Catalogue:
    by.require(Action.READ)
    return catalogue(site)
