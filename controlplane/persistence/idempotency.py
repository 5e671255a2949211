"""Answers to repeated POSTs: which deployment an `Idempotency-Key` made."""

from __future__ import annotations

from datetime import timedelta

from sqlalchemy import delete, func, insert, select, text
from sqlalchemy.orm import Session

from controlplane.persistence.tables import IdempotencyKey

KEPT = timedelta(days=1)
_PURGE = 100  # old rows removed with each new one: more than come in


def claim(session: Session, workspace: str, key: str) -> IdempotencyKey | None:
    """What `key` made before, or None; then nobody else can use it until this transaction
    ends, so two requests at once make one thing."""
    session.execute(
        text("SELECT pg_advisory_xact_lock(hashtextextended(:key, 0))"),
        {"key": f"idempotency {workspace} {key}"},
    )
    return session.scalars(
        select(IdempotencyKey).where(
            IdempotencyKey.workspace == workspace,
            IdempotencyKey.key == key,
            IdempotencyKey.created_at > func.now() - KEPT,
        )
    ).first()


def remember(
    session: Session, workspace: str, key: str, *, request_digest: str, deployment_id: str
) -> None:
    """Store what the claimed `key` made. Rows past their day go."""
    past = (
        select(IdempotencyKey.workspace, IdempotencyKey.key)
        .where(IdempotencyKey.created_at <= func.now() - KEPT)
        .limit(_PURGE)
        .with_for_update(skip_locked=True)
    )
    for old_workspace, old_key in session.execute(past).all():
        session.execute(
            delete(IdempotencyKey).where(
                IdempotencyKey.workspace == old_workspace, IdempotencyKey.key == old_key
            )
        )
    session.execute(
        insert(IdempotencyKey).values(
            workspace=workspace,
            key=key,
            request_digest=request_digest,
            deployment_id=deployment_id,
        )
    )
