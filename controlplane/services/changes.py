"""What the change stream shows: deployments as they are now."""

from __future__ import annotations

from collections.abc import Collection

from controlplane.auth.principals import Principal
from controlplane.persistence import deployments
from controlplane.persistence.deployments import Filters
from controlplane.services.deployments import listed
from controlplane.services.site import Site
from controlplane.services.views import View, to_view

_PAGE = 200


def load(site: Site, ids: Collection[str]) -> list[View]:
    """Those deployments, of whatever workspace: whoever hands them out must look at it."""
    with site.begin() as session:
        return [to_view(rows) for rows in deployments.by_ids(session, ids)]


def snapshot(site: Site, by: Principal) -> list[View]:
    """Every deployment that the caller may see, newest first."""
    found: list[View] = []
    page = listed(site, by, Filters(), after=None, limit=_PAGE)
    found += page.items
    while page.next is not None:
        page = listed(site, by, Filters(), after=page.next, limit=_PAGE)
        found += page.items
    return found
