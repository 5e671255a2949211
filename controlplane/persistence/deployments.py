"""Deployment rows with their status. Every query names the workspace: what belongs to
another one is not there."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, Select, func, insert, or_, select, tuple_, update
from sqlalchemy.dialects.postgresql import insert as pg_insert
from sqlalchemy.orm import Session

from controlplane.domain.phases import Desired, Phase
from controlplane.persistence.tables import DeploymentRow, StatusRow

Rows = tuple[DeploymentRow, StatusRow]


@dataclass(frozen=True, slots=True)
class Filters:
    """What a list is narrowed to. `labels` maps a key to the value it must have, or to None
    where any value will do. Without `phases`, deleted ones are left out."""

    phases: tuple[Phase, ...] = ()
    desired: Desired | None = None
    tier: str | None = None
    model: str | None = None
    name_prefix: str | None = None
    labels: Mapping[str, str | None] | None = None


@dataclass(frozen=True, slots=True)
class Position:
    """The last row of a page: the next one goes on behind it. The id decides between rows of
    the same moment, so pages neither repeat nor skip any."""

    created_at: datetime
    id: str


def add(
    session: Session,
    *,
    deployment_id: str,
    workspace: str,
    name: str,
    spec: Mapping[str, Any],
    engine_key: str,
) -> bool:
    """Store a deployment with its first status, phase queued. False, and nothing stored, when
    the name is taken in this workspace."""
    stored = session.execute(
        pg_insert(DeploymentRow)
        .values(
            id=deployment_id,
            workspace=workspace,
            name=name,
            spec=dict(spec),
            generation=1,
            desired=str(Desired.RUNNING),
        )
        .on_conflict_do_nothing(
            index_elements=["workspace", "name"], index_where=DeploymentRow.released_at.is_(None)
        )
        .returning(DeploymentRow.id)
    ).scalar_one_or_none()
    if stored is None:
        return False
    session.execute(
        insert(StatusRow).values(
            deployment_id=deployment_id, phase=str(Phase.QUEUED), engine_key=engine_key, detail={}
        )
    )
    return True


def find(session: Session, workspace: str, ref: str, *, lock: bool = False) -> Rows | None:
    """The deployment that `ref` names (its name, or its id even after it was deleted). With
    `lock`, its row can't change until this transaction ends."""
    named = (DeploymentRow.name == ref) & DeploymentRow.released_at.is_(None)
    found = (
        _both()
        .where(DeploymentRow.workspace == workspace, or_(named, DeploymentRow.id == ref))
        .order_by(named.desc())
        .limit(1)
        .execution_options(populate_existing=True)
    )
    if lock:
        found = found.with_for_update(of=DeploymentRow)
    row = session.execute(found).first()
    return None if row is None else (row[0], row[1])


def by_ids(session: Session, ids: Collection[str]) -> list[Rows]:
    """The deployments of those ids, whatever their workspaces: for the change stream, which
    hands each one to its own workspace's readers only."""
    return [(row[0], row[1]) for row in session.execute(_both().where(DeploymentRow.id.in_(ids)))]


def page(
    session: Session, workspace: str, filters: Filters, *, after: Position | None, limit: int
) -> list[Rows]:
    """At most `limit` deployments, newest first."""
    found = _both().where(DeploymentRow.workspace == workspace, *_conditions(filters))
    if after is not None:
        here = tuple_(DeploymentRow.created_at, DeploymentRow.id)
        found = found.where(here < tuple_(after.created_at, after.id))
    found = found.order_by(DeploymentRow.created_at.desc(), DeploymentRow.id.desc()).limit(limit)
    return [(row[0], row[1]) for row in session.execute(found)]


def respec(session: Session, row: DeploymentRow, spec: Mapping[str, Any]) -> None:
    """Give the locked `row` a new spec and with it the next generation."""
    _change(session, row, spec=dict(spec), generation=row.generation + 1)


def desire(session: Session, row: DeploymentRow, desired: Desired) -> None:
    """Change what is wanted of the locked `row`; the spec's generation stays."""
    _change(session, row, desired=str(desired))


def users_of_model(session: Session, ref: str) -> list[str]:
    """Names of the deployments, in any workspace, that name the model `ref`."""
    model, draft = DeploymentRow.spec["model"].astext, DeploymentRow.spec["draft_model"].astext
    return list(
        session.scalars(
            select(DeploymentRow.name)
            .where(DeploymentRow.released_at.is_(None), or_(model == ref, draft == ref))
            .order_by(DeploymentRow.name)
            .limit(20)
        )
    )


def _both() -> Select[DeploymentRow, StatusRow]:
    return select(DeploymentRow, StatusRow).join(
        StatusRow, StatusRow.deployment_id == DeploymentRow.id
    )


def _conditions(filters: Filters) -> Sequence[ColumnElement[bool]]:
    spec = DeploymentRow.spec
    found: list[ColumnElement[bool]] = []
    if filters.phases:
        found.append(StatusRow.phase.in_([str(p) for p in filters.phases]))
    else:
        found.append(DeploymentRow.released_at.is_(None))
    if filters.desired is not None:
        found.append(DeploymentRow.desired == str(filters.desired))
    if filters.tier is not None:
        found.append(spec["tier"].astext == filters.tier)
    if filters.model is not None:
        found.append(spec["model"].astext == filters.model)
    if filters.name_prefix is not None:
        found.append(DeploymentRow.name.startswith(filters.name_prefix, autoescape=True))
    for key, value in (filters.labels or {}).items():
        label = spec["labels"][key].astext
        found.append(label.is_not(None) if value is None else label == value)
    return found


def _change(session: Session, row: DeploymentRow, **values: Any) -> None:
    session.execute(
        update(DeploymentRow)
        .where(DeploymentRow.id == row.id)
        .values(**values, updated_at=func.clock_timestamp())
    )
    session.refresh(row)
