"""What happened to a deployment, for people and programs."""

from __future__ import annotations

from dataclasses import dataclass

from controlplane.auth.principals import Action, Principal
from controlplane.persistence import events
from controlplane.persistence.tables import EventRow
from controlplane.services.deployments import must_find
from controlplane.services.site import Site


@dataclass(frozen=True, slots=True)
class EventPage:
    items: list[EventRow]
    next: int | None


def listed(site: Site, by: Principal, ref: str, *, before: int | None, limit: int) -> EventPage:
    """One page of events, newest first. A deleted deployment's are found by its id."""
    by.require(Action.READ)
    with site.begin() as session:
        row, _ = must_find(session, by, ref)
        rows = events.page(session, row.id, row.workspace, before=before, limit=limit + 1)
    shown = rows[:limit]
    return EventPage(shown, shown[-1].number if len(rows) > limit else None)
