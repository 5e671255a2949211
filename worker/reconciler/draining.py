"""How replicas go: route off, requests finish, SIGTERM, SIGKILL, row away. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from controlplane.domain.deployment import Replica, RouteState
from worker.drivers.base import ReplicaSeen, ReplicaState
from worker.reconciler.facts import Facts, GatewaySaid, replica_key
from worker.reconciler.step import (
    Clear,
    Drain,
    Kill,
    Release,
    Sketch,
    StopStray,
    Terminate,
)

POLL = 0.25  # seconds between looks at something that is going


def take_down(f: Facts, sketch: Sketch, rows: Iterable[Replica]) -> None:
    """One step further down for each of `rows`, whatever state each is in."""
    for row in rows:
        _one_down(f, sketch, row)
        sketch.soon(POLL)


def stop_strays(f: Facts, sketch: Sketch) -> None:
    """What runs without a row was placed by nobody, so nothing is sent there: it ends."""
    for s in f.strays:
        row = Replica(
            deployment_id=f.deployment.id,
            slot=s.slot,
            render_hash=s.render_hash,
            generation=f.deployment.generation,
            devices=(),
            placed_at=f.now,
            route=RouteState.DRAINING,
            terminated_at=f.now,
        )
        sketch.do(Clear(row) if s.state is ReplicaState.EXITED else StopStray(row))
        sketch.soon(POLL)


def _one_down(f: Facts, sketch: Sketch, row: Replica) -> None:
    seen = f.look(row)
    if seen is None:
        sketch.do(Release(row))
    elif row.terminated_at is not None:
        _end(f, sketch, row, seen)
    elif seen.state is ReplicaState.EXITED or row.route is RouteState.PLACED:
        sketch.do(Terminate(row))
    elif row.route is RouteState.SERVING:
        sketch.do(Drain(row))
    elif drained(f, row, seen):
        sketch.do(Terminate(row))


def _end(f: Facts, sketch: Sketch, row: Replica, seen: ReplicaSeen) -> None:
    """After SIGTERM. Said again where it was lost; SIGKILL once the grace is over."""
    assert row.terminated_at is not None
    if f.now - row.terminated_at >= f.limits.stop_grace:
        sketch.do(Kill(row))
    elif seen.state is not ReplicaState.STOPPING:
        sketch.do(Terminate(row))


def drained(f: Facts, row: Replica, seen: ReplicaSeen) -> bool:
    """True when nothing is in flight at a draining replica and nothing can come any more, or
    the drain limit passed. A silent gateway is unknown: then the engine's own counts must be
    zero as well."""
    if row.drain_epoch is None or row.drain_started_at is None:
        return False
    if f.now - row.drain_started_at >= f.limits.drain_limit:
        return True
    live = [g for g in f.gateways if g.live]
    if not all(_through_with(g, row) for g in live):
        return False
    all_known = bool(live) and len(live) == len(f.gateways)
    return all_known or (seen.running == 0 and seen.waiting == 0)


def _through_with(gateway: GatewaySaid, row: Replica) -> bool:
    assert row.drain_epoch is not None
    return gateway.epoch >= row.drain_epoch and not gateway.replicas.get(replica_key(row))
