"""A worker's proof of life: work that it finished."""

from __future__ import annotations

from datetime import timedelta

from sqlalchemy import delete, func
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.orm import Session

from controlplane.persistence.tables import WorkerRow


def finished(session: Session, worker_id: str, *, started: bool = False) -> None:
    """`worker_id` finished something just now. `started`: its process began."""
    now = func.clock_timestamp()
    asked = insert(WorkerRow).values(id=worker_id[:100], started_at=now, finished_at=now)
    changes = {"finished_at": asked.excluded.finished_at}
    if started:
        changes["started_at"] = asked.excluded.started_at
    session.execute(asked.on_conflict_do_update(index_elements=[WorkerRow.id], set_=changes))


def leave(session: Session, worker_id: str) -> None:
    session.execute(delete(WorkerRow).where(WorkerRow.id == worker_id[:100]))


def prune(session: Session, *, silent_for: timedelta) -> None:
    session.execute(
        delete(WorkerRow).where(WorkerRow.finished_at < func.clock_timestamp() - silent_for)
    )
