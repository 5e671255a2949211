"""Statuses, as the reconciler reads and writes them: under the newest lease token, and for
the generation and wish that they were planned for."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime

from sqlalchemy import func, select, update
from sqlalchemy.orm import Session

from controlplane.domain.deployment import Status
from controlplane.domain.phases import Desired, Phase
from controlplane.persistence.mapping import status_columns
from controlplane.persistence.tables import DeploymentRow, StatusRow


def load(session: Session, deployment_id: str) -> tuple[DeploymentRow, StatusRow] | None:
    """One deployment that is not deleted."""
    rows = load_all(session, [deployment_id])
    return rows[0] if rows else None


def load_all(
    session: Session, ids: Collection[str] | None = None
) -> list[tuple[DeploymentRow, StatusRow]]:
    """Every deployment that is not deleted, of all workspaces, or those of `ids`."""
    found = (
        select(DeploymentRow, StatusRow)
        .join(StatusRow, StatusRow.deployment_id == DeploymentRow.id)
        .where(DeploymentRow.released_at.is_(None))
        .order_by(DeploymentRow.id)
        .execution_options(populate_existing=True)
    )
    if ids is not None:
        found = found.where(DeploymentRow.id.in_(ids))
    return [(row[0], row[1]) for row in session.execute(found)]


def record(
    session: Session,
    deployment_id: str,
    status: Status,
    *,
    token: int,
    generation: int,
    desired: Desired,
) -> bool:
    """Store `status`. False, and nothing stored, when a newer lease was taken, or the spec or
    the wish changed since it was planned: then plan again."""
    planned_for = (
        select(DeploymentRow.id)
        .where(
            DeploymentRow.id == deployment_id,
            DeploymentRow.generation == generation,
            DeploymentRow.desired == str(desired),
        )
        .exists()
    )
    stored = session.execute(
        update(StatusRow)
        .where(StatusRow.deployment_id == deployment_id, StatusRow.lease_token == token)
        .where(planned_for)
        .values(
            **status_columns(status),
            version=StatusRow.version + 1,
            updated_at=func.clock_timestamp(),
        )
        .returning(StatusRow.version)
        .execution_options(synchronize_session=False)
    ).scalar_one_or_none()
    return stored is not None


def hold(session: Session, deployment_id: str, token: int) -> bool:
    """True when `token` is still the newest; nobody can take the lease until this
    transaction ends."""
    held = session.execute(
        select(StatusRow.deployment_id)
        .where(StatusRow.deployment_id == deployment_id, StatusRow.lease_token == token)
        .with_for_update()
    ).scalar_one_or_none()
    return held is not None


def release_name(session: Session, deployment_id: str) -> None:
    """The deployment is deleted: its name is free from now on."""
    session.execute(
        update(DeploymentRow)
        .where(DeploymentRow.id == deployment_id, DeploymentRow.released_at.is_(None))
        .values(released_at=func.clock_timestamp())
        .execution_options(synchronize_session=False)
    )


def gone_before(session: Session, ids: Collection[str], moment: datetime) -> set[str]:
    """Those of `ids` that have no deployment, or one that was deleted before `moment`."""
    kept = session.scalars(
        select(DeploymentRow.id).where(
            DeploymentRow.id.in_(ids),
            (DeploymentRow.released_at.is_(None)) | (DeploymentRow.released_at > moment),
        )
    )
    return set(ids) - set(kept)


def phases(session: Session) -> dict[Phase, int]:
    """How many deployments stand in each phase."""
    rows = session.execute(
        select(StatusRow.phase, func.count())
        .where(StatusRow.phase != str(Phase.DELETED))
        .group_by(StatusRow.phase)
    )
    return {Phase(phase): count for phase, count in rows}
