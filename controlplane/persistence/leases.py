"""Who works on a deployment now: a lease with a token that only grows. What is written under
an older token than the newest is refused by each writer's own WHERE."""

from __future__ import annotations

from datetime import timedelta

from sqlalchemy import ColumnElement, delete, func, or_, select, update
from sqlalchemy.orm import Session

from controlplane.domain.phases import Phase
from controlplane.persistence.tables import StatusRow, TimerRow


def claim(session: Session, deployment_id: str, owner: str, lasts: timedelta) -> int | None:
    """A new token, or None where somebody holds the lease, or there is nothing to work on.
    The look that was due is this one; whoever wants another asks for it again."""
    free = or_(StatusRow.lease_until.is_(None), StatusRow.lease_until <= func.clock_timestamp())
    token = session.execute(
        update(StatusRow)
        .where(
            StatusRow.deployment_id == deployment_id,
            StatusRow.phase != str(Phase.DELETED),
            free,
        )
        .values(
            lease_token=StatusRow.lease_token + 1,
            lease_owner=owner[:100],
            lease_until=func.clock_timestamp() + lasts,
        )
        .returning(StatusRow.lease_token)
        .execution_options(synchronize_session=False)
    ).scalar_one_or_none()
    if token is not None:
        session.execute(delete(TimerRow).where(TimerRow.deployment_id == deployment_id))
    return token


def is_held(session: Session, deployment_id: str) -> bool:
    """True when somebody works on it right now."""
    found = session.scalars(
        select(StatusRow.deployment_id).where(
            StatusRow.deployment_id == deployment_id,
            StatusRow.phase != str(Phase.DELETED),
            StatusRow.lease_until > func.clock_timestamp(),
        )
    ).first()
    return found is not None


def release(session: Session, deployment_id: str, token: int) -> None:
    """Give the lease back, if it is still ours."""
    _free(session, StatusRow.deployment_id == deployment_id, StatusRow.lease_token == token)


def release_all(session: Session, owner: str) -> None:
    """Give back what a former self held: its process is gone, and nobody else has its name."""
    _free(session, StatusRow.lease_owner == owner[:100])


def _free(session: Session, *which: ColumnElement[bool]) -> None:
    session.execute(
        update(StatusRow)
        .where(*which)
        .values(lease_owner=None, lease_until=None)
        .execution_options(synchronize_session=False)
    )
