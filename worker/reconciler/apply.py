"""Turns a step into rows and effects: rows first, in one transaction under the lease's token,
then effects under the same token's fence. Whoever dies between the two leaves rows from which
the next look goes on."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

from sqlalchemy.orm import Session

from controlplane.domain.deployment import IntentKind, RouteState, Status
from controlplane.domain.phases import Phase
from controlplane.domain.reasons import Reason
from controlplane.persistence import events, intents, replicas, status, timers
from controlplane.persistence.changes import announce, raise_epoch
from controlplane.telemetry import PHASE_SECONDS
from worker.drivers.base import Driver, Fence, ReplicaOrder
from worker.reconciler.facts import MACHINE, Facts
from worker.reconciler.step import (
    Action,
    Clear,
    Drain,
    FetchWeights,
    Forget,
    Kill,
    MakeRoom,
    Place,
    Release,
    Renew,
    Serve,
    Start,
    Step,
    StopStray,
    Terminate,
    Unserve,
)

ROOM_ASKED_FOR = timedelta(seconds=60)
SOONEST = 0.25  # seconds: what is wanted at once follows under this lease; this is if we die
_ENDS_ROUTE = (Terminate, Release)


class Outdated(Exception):
    """What was planned no longer fits: a newer lease, spec or wish, or a slot that somebody
    else took meanwhile. Nothing was written."""


def record(session: Session, f: Facts, step: Step, token: int) -> None:
    """Write the step's rows. Raises Outdated, before anything is committed."""
    d = f.deployment
    if step.status != d.status or step.actions:
        kept = status.record(
            session, d.id, step.status, token=token, generation=d.generation, desired=d.desired
        )
        if not kept:
            raise Outdated
        for action in step.actions:
            _write(session, f, action)
        _tell(session, f, step)
        announce(session, d.id)
    if step.status.phase is Phase.DELETED:
        status.release_name(session, d.id)
    elif step.again_in is not None:
        timers.schedule(session, d.id, max(step.again_in, SOONEST))
    if any(isinstance(a, Release) for a in step.actions):
        timers.nudge_waiting(session)
    if _moves_routes(f, step):
        # Last, because its lock makes every other route change wait for this commit.
        epoch = raise_epoch(session)
        for action in step.actions:
            if isinstance(action, Drain):
                replicas.drain(session, action.row, epoch)


def _write(session: Session, f: Facts, action: Action) -> None:
    match action:
        case Place(row):
            if not replicas.place(session, row):
                raise Outdated
        case Renew(row, generation):
            replicas.renew(session, row, generation)
        case Serve(row, endpoint):
            replicas.serve(session, row, endpoint)
        case Unserve(row):
            replicas.unserve(session, row)
        case Terminate(row):
            replicas.terminate(session, row)
        case StopStray(row):
            replicas.adopt_ending(session, row)
        case Release(row):
            replicas.release(session, row)
        case MakeRoom(victim, _):
            _ask_for_room(session, f, action)
            timers.schedule(session, victim, 0)


def _ask_for_room(session: Session, f: Facts, action: MakeRoom) -> None:
    intents.append(
        session,
        action.victim,
        IntentKind.SLEEP,
        asked_by=MACHINE,
        reason=Reason.MADE_ROOM,
        expires_in=ROOM_ASKED_FOR,
    )
    events.append(
        session,
        action.victim,
        f.deployment.workspace,
        "sleep_asked",
        f"{action.name} is to sleep, so that {f.deployment.name} can wake.",
        actor=MACHINE,
    )
    announce(session, action.victim)


def _tell(session: Session, f: Facts, step: Step) -> None:
    """Each phase that was gone through, each failure and each new reason, as an event."""
    d, new = f.deployment, step.status
    for phase in step.trail:
        last = phase is new.phase
        events.append(
            session,
            d.id,
            d.workspace,
            "phase",
            (new.message if last else "") or f"{d.name} is {phase}.",
            actor=MACHINE,
            phase=phase,
            reason=new.reason if last else None,
        )
    if step.trail and d.status.since:
        lasted = (f.now - d.status.since).total_seconds()
        PHASE_SECONDS.labels(phase=str(d.status.phase)).observe(max(lasted, 0.0))
    failed = new.attempts > d.status.attempts
    if not step.trail and (failed or new.reason not in (None, d.status.reason)):
        events.append(
            session,
            d.id,
            d.workspace,
            "failure" if failed else "reason",
            new.message,
            actor=MACHINE,
            phase=new.phase,
            reason=new.reason,
        )


def _moves_routes(f: Facts, step: Step) -> bool:
    if step.trail or _shown(step.status) != _shown(f.deployment.status):
        return True
    return any(
        isinstance(a, Serve | Unserve | Drain)
        or (isinstance(a, _ENDS_ROUTE) and a.row.route is RouteState.SERVING)
        for a in step.actions
    )


def _shown(s: Status) -> tuple[object, ...]:
    """What a gateway tells callers of a deployment that doesn't answer."""
    return (s.phase, s.reason, s.first_ready_at, s.up_since)


def perform(
    driver: Driver, f: Facts, step: Step, fence: Fence, engine_key: str, in_time: Callable[[], bool]
) -> bool:
    """Do the step's effects, in order, as long as there is time; False when some are left,
    which the next look finds undone. Raises what the driver raises, at the first."""
    for action in step.actions:
        if isinstance(action, Start | FetchWeights | Terminate | Kill | Clear | StopStray):
            if not in_time():
                return False
            _effect(driver, f, action, fence, engine_key)
    return True


def forget_first(driver: Driver, step: Step, fence: Fence) -> None:
    """Files go before the row says deleted: whoever reads `deleted` finds nothing left."""
    if any(isinstance(a, Forget) for a in step.actions):
        driver.forget(fence.deployment_id, fence)


def _effect(driver: Driver, f: Facts, action: Action, fence: Fence, engine_key: str) -> None:
    match action:
        case Start():
            driver.start(_order(f, action, engine_key), fence)
        case FetchWeights(order):
            driver.fetch(order, fence)
        case Kill(row):
            driver.stop(row.deployment_id, row.slot, row.render_hash, kill=True, fence=fence)
        case Terminate(row) | Clear(row) | StopStray(row):
            driver.stop(row.deployment_id, row.slot, row.render_hash, kill=False, fence=fence)


def _order(f: Facts, start: Start, engine_key: str) -> ReplicaOrder:
    d = f.deployment
    assert f.tier is not None
    return ReplicaOrder(
        deployment_id=d.id,
        name=d.name,
        slot=start.row.slot,
        render_hash=start.row.render_hash,
        tier=f.tier,
        resolved=start.resolved,
        model_path=start.model_path,
        draft_path=start.draft_path,
        context_length=d.spec.context_length,
        args=d.spec.engine.args,
        devices=tuple(x for x in f.world.devices or () if x.id in start.row.devices),
        engine_key=engine_key,
    )
