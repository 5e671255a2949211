"""Telling others that rows changed, inside the transaction that changes them: PostgreSQL
delivers a notification only when, and only if, it commits."""

from __future__ import annotations

from sqlalchemy import text
from sqlalchemy.orm import Session

from controlplane.persistence.channels import CHANGES as CHANGES
from controlplane.persistence.channels import ROUTES as ROUTES


def announce(session: Session, deployment_id: str) -> None:
    """Tell the change stream that a deployment or its status changed."""
    session.execute(text("SELECT pg_notify(:c, :id)"), {"c": CHANGES, "id": deployment_id})


def raise_epoch(session: Session) -> int:
    """The new route epoch. Whatever this transaction changes of routes, keys or wake rules is
    in force at a gateway that shows this epoch or a later one. The one row's lock makes the
    order of epochs the order of commits: call it late, it holds others up until the commit."""
    epoch = session.execute(
        text("UPDATE route_epoch SET epoch = epoch + 1 WHERE id = 1 RETURNING epoch")
    ).scalar_one()
    session.execute(text("SELECT pg_notify(:c, :e)"), {"c": ROUTES, "e": str(epoch)})
    return int(epoch)
