"""What happened to a deployment, append-only."""

from __future__ import annotations

from sqlalchemy import insert, select
from sqlalchemy.orm import Session

from controlplane.domain.phases import Phase
from controlplane.domain.reasons import Reason
from controlplane.persistence.tables import EventRow


def append(
    session: Session,
    deployment_id: str,
    workspace: str,
    kind: str,
    message: str,
    *,
    actor: str,
    phase: Phase | None = None,
    reason: Reason | None = None,
) -> int:
    """Store one event and return its number. `kind` is a word for programs (`created`,
    `phase`, `paused`), `message` a sentence for people, `actor` who or what caused it."""
    return session.execute(
        insert(EventRow)
        .values(
            deployment_id=deployment_id,
            workspace=workspace,
            kind=kind[:32],
            message=message,
            actor=actor[:100],
            phase=str(phase) if phase else None,
            reason=str(reason) if reason else None,
        )
        .returning(EventRow.number)
    ).scalar_one()


def page(
    session: Session, deployment_id: str, workspace: str, *, before: int | None, limit: int
) -> list[EventRow]:
    """At most `limit` events of one deployment, newest first, older than number `before`."""
    found = select(EventRow).where(
        EventRow.deployment_id == deployment_id, EventRow.workspace == workspace
    )
    if before is not None:
        found = found.where(EventRow.number < before)
    return list(session.scalars(found.order_by(EventRow.number.desc()).limit(limit)))
