"""Numbered wishes for sleep or waking. Appended by whoever asks, read by the reconciler."""

from __future__ import annotations

from collections.abc import Collection
from datetime import timedelta

from sqlalchemy import func, insert, select
from sqlalchemy.dialects.postgresql import distinct_on
from sqlalchemy.orm import Session

from controlplane.domain.deployment import DeploymentId, Intent, IntentKind
from controlplane.domain.reasons import Reason
from controlplane.persistence.tables import IntentRow


def append(
    session: Session,
    deployment_id: str,
    kind: IntentKind,
    *,
    asked_by: str,
    reason: Reason | None = None,
    expires_in: timedelta | None = None,
) -> int:
    """Store one intent and return its number. `expires_in` counts from the database's now."""
    return session.execute(
        insert(IntentRow)
        .values(
            deployment_id=deployment_id,
            kind=str(kind),
            asked_by=asked_by[:100],
            reason=str(reason) if reason else None,
            expires_at=None if expires_in is None else func.now() + expires_in,
        )
        .returning(IntentRow.number)
    ).scalar_one()


def newest(session: Session, ids: Collection[str]) -> dict[DeploymentId, Intent]:
    """The highest-numbered intent of each deployment, handled or not."""
    rows = session.scalars(
        select(IntentRow)
        .where(IntentRow.deployment_id.in_(ids))
        .ext(distinct_on(IntentRow.deployment_id))
        .order_by(IntentRow.deployment_id, IntentRow.number.desc())
    )
    return {
        DeploymentId(r.deployment_id): Intent(
            number=r.number,
            kind=IntentKind(r.kind),
            created_at=r.created_at,
            expires_at=r.expires_at,
            reason=Reason(r.reason) if r.reason else None,
            asked_by=r.asked_by,
        )
        for r in rows
    }
