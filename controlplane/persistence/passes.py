"""Periodic passes, each as a lease: two beats, or a burst of late messages, run it once."""

from __future__ import annotations

from datetime import timedelta

from sqlalchemy import func, select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.orm import Session

from controlplane.persistence.tables import PassRow


def take(session: Session, name: str, by: str, *, not_within: timedelta) -> bool:
    """True when nobody took this pass within the last `not_within`; from now on it is ours."""
    asked = insert(PassRow).values(name=name, ran_at=func.clock_timestamp(), ran_by=by[:100])
    taken = session.execute(
        asked.on_conflict_do_update(
            index_elements=[PassRow.name],
            set_={"ran_at": asked.excluded.ran_at, "ran_by": asked.excluded.ran_by},
            where=PassRow.ran_at <= func.clock_timestamp() - not_within,
        ).returning(PassRow.name)
    ).scalar_one_or_none()
    return taken is not None


def is_late(session: Session, name: str, *, after: timedelta) -> bool:
    """True when the pass didn't run for `after`, or never."""
    recent = session.scalars(
        select(PassRow.name).where(
            PassRow.name == name, PassRow.ran_at > func.clock_timestamp() - after
        )
    ).first()
    return recent is None
