"""Placed replicas: the claims on devices, and the routes."""

from __future__ import annotations

from collections.abc import Collection

from sqlalchemy import ColumnElement, delete, func, insert, select, text, update
from sqlalchemy.dialects.postgresql import insert as pg_insert
from sqlalchemy.orm import Session

from controlplane.domain.deployment import Replica, RouteState
from controlplane.persistence.mapping import to_replica
from controlplane.persistence.tables import ReplicaRow

_PLACEMENT = 5_118_260_447_312  # any number that is ours alone among advisory locks


def load_all(session: Session, ids: Collection[str] | None = None) -> list[Replica]:
    """All placed replicas, or those of `ids`."""
    found = select(ReplicaRow).order_by(
        ReplicaRow.deployment_id, ReplicaRow.slot, ReplicaRow.render_hash
    )
    if ids is not None:
        found = found.where(ReplicaRow.deployment_id.in_(ids))
    found = found.execution_options(populate_existing=True)
    return [to_replica(r) for r in session.scalars(found)]


def place(session: Session, row: Replica) -> bool:
    """Claim the devices of `row`. False when another replica holds one of them: whoever
    places takes its turn, so that what is free now stays free until this commits."""
    session.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": _PLACEMENT})
    if row.devices:
        taken = session.scalars(select(ReplicaRow.devices))
        if set(row.devices).intersection(d for devices in taken for d in devices):
            return False
    session.execute(
        insert(ReplicaRow).values(
            deployment_id=row.deployment_id,
            slot=row.slot,
            render_hash=row.render_hash,
            generation=row.generation,
            devices=list(row.devices),
            placed_at=func.clock_timestamp(),
            route=str(RouteState.PLACED),
        )
    )
    return True


def adopt_ending(session: Session, row: Replica) -> None:
    """A row for a replica that nobody placed, so that its end is watched like any other's."""
    session.execute(
        pg_insert(ReplicaRow)
        .values(
            deployment_id=row.deployment_id,
            slot=row.slot,
            render_hash=row.render_hash,
            generation=row.generation,
            devices=[],
            route=str(RouteState.DRAINING),
            terminated_at=func.clock_timestamp(),
        )
        .on_conflict_do_nothing()
    )


def renew(session: Session, row: Replica, generation: int) -> None:
    _change(session, row, generation=generation)


def serve(session: Session, row: Replica, endpoint: str | None) -> None:
    _change(
        session,
        row,
        route=str(RouteState.SERVING),
        endpoint=endpoint,
        drain_epoch=None,
        drain_started_at=None,
    )


def unserve(session: Session, row: Replica) -> None:
    _change(session, row, route=str(RouteState.PLACED), endpoint=None)


def drain(session: Session, row: Replica, epoch: int) -> None:
    _change(
        session,
        row,
        route=str(RouteState.DRAINING),
        drain_epoch=epoch,
        drain_started_at=func.clock_timestamp(),
    )


def terminate(session: Session, row: Replica) -> None:
    """SIGTERM is sent after this commits. A second one keeps the time of the first."""
    _change(
        session,
        row,
        route=str(RouteState.DRAINING),
        terminated_at=func.coalesce(ReplicaRow.terminated_at, func.clock_timestamp()),
    )


def release(session: Session, row: Replica) -> None:
    session.execute(delete(ReplicaRow).where(*_is(row)))


def _change(session: Session, row: Replica, **values: object) -> None:
    session.execute(
        update(ReplicaRow)
        .where(*_is(row))
        .values(**values)
        .execution_options(synchronize_session=False)
    )


def _is(row: Replica) -> tuple[ColumnElement[bool], ...]:
    return (
        ReplicaRow.deployment_id == row.deployment_id,
        ReplicaRow.slot == row.slot,
        ReplicaRow.render_hash == row.render_hash,
    )
