"""What gateways tell, and how far it can be trusted, read by the database's clock."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import delete, func, select, text
from sqlalchemy.orm import Session

from controlplane.persistence.tables import GatewayRow

_STARTED = text("SELECT clock_timestamp(), pg_postmaster_start_time()")


@dataclass(frozen=True, slots=True)
class Clock:
    """The database's time, and since when its service runs."""

    now: datetime
    database_since: datetime


@dataclass(frozen=True, slots=True)
class Beat:
    """One gateway's last word, by deployment."""

    seen_at: datetime
    epoch: int
    activity: Mapping[str, Any]


def clock(session: Session) -> Clock:
    now, since = session.execute(_STARTED).one()
    return Clock(now, since)


def beats(session: Session) -> list[Beat]:
    rows = session.execute(select(GatewayRow.seen_at, GatewayRow.epoch, GatewayRow.activity))
    return [Beat(seen_at, epoch, said or {}) for seen_at, epoch, said in rows]


def prune(session: Session, *, silent_for: timedelta) -> None:
    """Forget gateways that are silent for so long that they are gone."""
    session.execute(
        delete(GatewayRow).where(GatewayRow.seen_at < func.clock_timestamp() - silent_for)
    )
