"""This installation's id: one row, made once."""

from __future__ import annotations

from sqlalchemy import insert, select
from sqlalchemy.orm import Session

from controlplane.persistence.tables import Installation


def ensure(session: Session, fresh_id: str) -> str:
    """The installation's id; `fresh_id` becomes it where there is none. Callers take turns."""
    there = session.scalars(select(Installation.id)).first()
    if there is not None:
        return there
    session.execute(insert(Installation).values(id=fresh_id))
    return fresh_id
