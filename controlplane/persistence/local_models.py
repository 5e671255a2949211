"""Weights that an admin registered as `local/NAME`."""

from __future__ import annotations

from sqlalchemy import delete, select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.orm import Session

from controlplane.persistence.tables import LocalModel


def add(session: Session, name: str, path: str) -> LocalModel | None:
    """Register `path` as `name`; None, and nothing changed, when the name is taken."""
    return session.execute(
        insert(LocalModel)
        .values(name=name, path=path)
        .on_conflict_do_nothing()
        .returning(LocalModel)
    ).scalar_one_or_none()


def find(session: Session, name: str, *, lock: bool = False) -> LocalModel | None:
    """The model of that name. With `lock`, it can't be removed until this transaction ends."""
    found = select(LocalModel).where(LocalModel.name == name)
    return session.scalars(found.with_for_update(read=True) if lock else found).first()


def listed(session: Session) -> list[LocalModel]:
    return list(session.scalars(select(LocalModel).order_by(LocalModel.name)))


def remove(session: Session, name: str) -> bool:
    """True when there was such a model. Its folder stays as it is."""
    gone = session.execute(
        delete(LocalModel).where(LocalModel.name == name).returning(LocalModel.name)
    )
    return gone.scalar_one_or_none() is not None
