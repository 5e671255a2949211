"""When deployments want their next look. The earliest wish counts."""

from __future__ import annotations

from datetime import timedelta

from sqlalchemy import func, select, text
from sqlalchemy.dialects.postgresql import insert as pg_insert
from sqlalchemy.orm import Session

from controlplane.persistence.tables import DeploymentRow, StatusRow, TimerRow

_TAKE = text("""
    UPDATE timers SET due_at = clock_timestamp() + make_interval(secs => :again)
    WHERE deployment_id IN (
        SELECT deployment_id FROM timers WHERE due_at <= clock_timestamp()
        ORDER BY due_at LIMIT :most FOR UPDATE SKIP LOCKED)
    RETURNING deployment_id""")


def schedule(session: Session, deployment_id: str, seconds: float) -> None:
    """Look at it within `seconds`."""
    due = func.clock_timestamp() + timedelta(seconds=seconds)
    asked = pg_insert(TimerRow).values(deployment_id=deployment_id, due_at=due)
    session.execute(
        asked.on_conflict_do_update(
            index_elements=[TimerRow.deployment_id],
            set_={"due_at": func.least(TimerRow.due_at, asked.excluded.due_at)},
        )
    )


def nudge_waiting(session: Session) -> None:
    """A slot became free: everybody who waits for one looks at once."""
    waiting = (
        select(StatusRow.deployment_id, func.clock_timestamp())
        .join(DeploymentRow, DeploymentRow.id == StatusRow.deployment_id)
        .where(StatusRow.waiting_since.is_not(None), DeploymentRow.released_at.is_(None))
        .order_by(StatusRow.deployment_id)
    )
    asked = pg_insert(TimerRow).from_select(["deployment_id", "due_at"], waiting)
    session.execute(
        asked.on_conflict_do_update(
            index_elements=[TimerRow.deployment_id],
            set_={"due_at": func.least(TimerRow.due_at, asked.excluded.due_at)},
        )
    )


def take_due(session: Session, *, most: int, again: float) -> list[str]:
    """Deployments whose look is due; each is told to one caller, and again after `again`
    seconds unless a look began by then."""
    return list(session.scalars(_TAKE, {"most": most, "again": again}))
