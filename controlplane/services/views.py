"""A deployment as callers see it, made from its rows even where its spec no longer parses:
one bad row never hides the others."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from controlplane.domain.deployment import Status
from controlplane.domain.phases import LIGHTS, Desired, Light
from controlplane.domain.reasons import Reason
from controlplane.domain.spec_json import parse_spec, spec_to_json
from controlplane.errors import Invalid
from controlplane.persistence.mapping import to_status
from controlplane.persistence.tables import DeploymentRow, StatusRow


@dataclass(frozen=True, slots=True)
class View:
    """`spec` is its JSON form, with every default filled in."""

    id: str
    name: str
    workspace: str
    spec: Mapping[str, Any]
    generation: int
    desired: Desired
    status: Status
    created_at: datetime
    updated_at: datetime

    @property
    def light(self) -> Light:
        """The phase's light; orange while nobody can tell whether it still holds."""
        if self.status.reason is Reason.DRIVER_UNREACHABLE:
            return Light.ORANGE
        return LIGHTS[self.status.phase]


def to_view(rows: tuple[DeploymentRow, StatusRow]) -> View:
    row, status = rows
    return View(
        id=row.id,
        name=row.name,
        workspace=row.workspace,
        spec=_spec(row.spec),
        generation=row.generation,
        desired=Desired(row.desired),
        status=to_status(status),
        created_at=row.created_at,
        updated_at=max(row.updated_at, status.updated_at),
    )


def _spec(stored: Mapping[str, Any]) -> Mapping[str, Any]:
    try:
        return spec_to_json(parse_spec(stored))
    except Invalid:
        return stored
