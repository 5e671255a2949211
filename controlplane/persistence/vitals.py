"""What shows that the whole system lives: each part's last proof, with its age by the
database's clock. Reads only."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from controlplane.persistence.tables import GatewayRow, PassRow, ReplicaRow, WorkerRow


@dataclass(frozen=True, slots=True)
class Proof:
    """One part, and how many seconds ago it last proved that it works."""

    id: str
    age: float


@dataclass(frozen=True, slots=True)
class Vitals:
    now: datetime
    workers: tuple[Proof, ...]
    gateways: tuple[Proof, ...]
    passes: tuple[Proof, ...]


def read(session: Session) -> Vitals:
    now = read_clock(session)

    def proofs(column_id: object, column_at: object) -> tuple[Proof, ...]:
        rows = session.execute(select(column_id, column_at)).all()  # type: ignore[call-overload]
        return tuple(
            sorted(
                (Proof(i, max(0.0, (now - at).total_seconds())) for i, at in rows),
                key=lambda p: p.age,
            )
        )

    return Vitals(
        now=now,
        workers=proofs(WorkerRow.id, WorkerRow.finished_at),
        gateways=proofs(GatewayRow.id, GatewayRow.seen_at),
        passes=proofs(PassRow.name, PassRow.ran_at),
    )


@dataclass(frozen=True, slots=True)
class Traffic:
    """What live gateways say of one deployment. `last_byte_at` is None when none tells."""

    in_flight: int
    held: int
    last_byte_at: datetime | None


def traffic(session: Session, deployment_id: str, *, silent_after: float) -> Traffic | None:
    """Sums over the gateways seen within `silent_after` seconds; None when there is none:
    then nothing is known, which is not the same as idle."""
    rows = session.execute(
        select(
            GatewayRow.activity[deployment_id],
            GatewayRow.seen_at,
            func.extract("epoch", func.clock_timestamp() - GatewayRow.seen_at),
        )
    ).all()
    live = [(said or {}, seen_at) for said, seen_at, age in rows if float(age) <= silent_after]
    if not live:
        return None
    moments = [
        seen_at.timestamp() - said["age_ms"] / 1000
        for said, seen_at in live
        if said.get("age_ms") is not None
    ]
    return Traffic(
        in_flight=sum(int(said.get("in_flight", 0)) for said, _ in live),
        held=sum(int(said.get("held", 0)) for said, _ in live),
        last_byte_at=datetime.fromtimestamp(max(moments), live[0][1].tzinfo) if moments else None,
    )


def replicas(session: Session, deployment_id: str) -> list[ReplicaRow]:
    return list(
        session.scalars(
            select(ReplicaRow)
            .where(ReplicaRow.deployment_id == deployment_id)
            .order_by(ReplicaRow.slot, ReplicaRow.render_hash)
        )
    )


def read_clock(session: Session) -> datetime:
    """The database's clock, as it is and not as it was when the transaction began."""
    now: datetime = session.execute(select(func.clock_timestamp())).scalar_one()
    return now
