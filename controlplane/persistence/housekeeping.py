"""Rows that are past their time."""

from __future__ import annotations

from datetime import timedelta

from sqlalchemy import delete, func
from sqlalchemy.orm import Session

from controlplane.persistence.tables import IdempotencyKey, SignIn


def expire(session: Session, *, idempotency: timedelta) -> None:
    """Remove answers kept for repeated requests, and sign-ins that no longer hold."""
    now = func.clock_timestamp()
    session.execute(delete(IdempotencyKey).where(IdempotencyKey.created_at < now - idempotency))
    session.execute(delete(SignIn).where(SignIn.expires_at < now))
