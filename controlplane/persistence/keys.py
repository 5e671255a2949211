"""API keys, by workspace. What is stored of a key proves it and can't be turned back into it."""

from __future__ import annotations

from datetime import timedelta

from sqlalchemy import ColumnElement, func, insert, or_, select, text, update
from sqlalchemy.dialects.postgresql import insert as pg_insert
from sqlalchemy.orm import Session

from controlplane.persistence.tables import ApiKey, Workspace


def add(
    session: Session,
    *,
    key_id: str,
    workspace: str,
    name: str,
    role: str,
    lookup: str,
    digest: str,
    expires_in: timedelta | None = None,
) -> ApiKey:
    """Store a key. `expires_in` counts from the database's now."""
    return session.execute(
        insert(ApiKey)
        .values(
            id=key_id,
            workspace=workspace,
            name=name,
            role=role,
            lookup=lookup,
            digest=digest,
            expires_at=None if expires_in is None else func.now() + expires_in,
        )
        .returning(ApiKey)
    ).scalar_one()


def by_lookup(session: Session, lookup: str) -> ApiKey | None:
    """The key with that lookup part, if it is neither revoked nor expired."""
    return session.scalars(select(ApiKey).where(ApiKey.lookup == lookup, *_in_force())).first()


def in_force(session: Session, key_id: str) -> ApiKey | None:
    """The key of that id, if it is neither revoked nor expired."""
    return session.scalars(select(ApiKey).where(ApiKey.id == key_id, *_in_force())).first()


def listed(session: Session, workspace: str) -> list[ApiKey]:
    """Every key of the workspace, revoked ones too, newest first."""
    return list(
        session.scalars(
            select(ApiKey)
            .where(ApiKey.workspace == workspace)
            .order_by(ApiKey.created_at.desc(), ApiKey.id.desc())
        )
    )


def find(session: Session, workspace: str, key_id: str) -> ApiKey | None:
    return session.scalars(
        select(ApiKey).where(ApiKey.workspace == workspace, ApiKey.id == key_id)
    ).first()


def lock_workspace(session: Session, workspace: str) -> None:
    """Let nobody else decide about this workspace's keys until this transaction ends."""
    session.execute(
        select(Workspace.id).where(Workspace.id == workspace).with_for_update()
    ).scalar_one_or_none()


def count_lasting(session: Session, workspace: str, role: str, *, besides: str) -> int:
    """How many keys of `role` are in force and never expire, the key `besides` not counted."""
    return session.execute(
        select(func.count()).where(
            ApiKey.workspace == workspace,
            ApiKey.role == role,
            ApiKey.id != besides,
            ApiKey.revoked_at.is_(None),
            ApiKey.expires_at.is_(None),
        )
    ).scalar_one()


def revoke(session: Session, key: ApiKey) -> None:
    """Revoke `key` from this transaction's commit on; a revoked one stays as it is."""
    session.execute(
        update(ApiKey)
        .where(ApiKey.id == key.id, ApiKey.revoked_at.is_(None))
        .values(revoked_at=func.now())
    )
    session.refresh(key)


def known_digests(session: Session, workspace: str, role: str) -> set[str]:
    """Digests of all keys of `role`, revoked ones too."""
    return set(
        session.scalars(
            select(ApiKey.digest).where(ApiKey.workspace == workspace, ApiKey.role == role)
        )
    )


def add_workspace(session: Session, workspace: str) -> None:
    """Make the workspace if it isn't there."""
    session.execute(pg_insert(Workspace).values(id=workspace).on_conflict_do_nothing())


def serialize(session: Session, number: int) -> None:
    """Wait for others that hold the advisory lock `number`; hold it until the commit."""
    session.execute(text("SELECT pg_advisory_xact_lock(:n)"), {"n": number})


def _in_force() -> tuple[ColumnElement[bool], ...]:
    return (
        ApiKey.revoked_at.is_(None),
        or_(ApiKey.expires_at.is_(None), ApiKey.expires_at > func.now()),
    )
