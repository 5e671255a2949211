"""Single-use sign-in links and the browser sessions that they become. Only digests of their
secrets are stored."""

from __future__ import annotations

from datetime import datetime, timedelta

from sqlalchemy import delete, func, insert, select
from sqlalchemy.orm import Session

from controlplane.persistence.tables import SignIn

LINK, SESSION = "link", "session"


def add(session: Session, *, digest: str, kind: str, api_key_id: str, lasts: timedelta) -> datetime:
    """Store a link or a session and return when it expires. Expired ones go."""
    session.execute(delete(SignIn).where(SignIn.expires_at <= func.now()))
    return session.execute(
        insert(SignIn)
        .values(digest=digest, kind=kind, api_key_id=api_key_id, expires_at=func.now() + lasts)
        .returning(SignIn.expires_at)
    ).scalar_one()


def take_link(session: Session, digest: str) -> str | None:
    """The key id of an unused link, which is used up by this; None when there is none."""
    return session.execute(
        delete(SignIn)
        .where(SignIn.digest == digest, SignIn.kind == LINK, SignIn.expires_at > func.now())
        .returning(SignIn.api_key_id)
    ).scalar_one_or_none()


def key_of_session(session: Session, digest: str) -> str | None:
    """The key id behind a browser session that has not expired."""
    return session.scalars(
        select(SignIn.api_key_id).where(
            SignIn.digest == digest, SignIn.kind == SESSION, SignIn.expires_at > func.now()
        )
    ).first()
