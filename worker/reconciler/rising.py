"""How replicas come: placed, started, answering, serving; and how an update replaces them.
Pure."""

from __future__ import annotations

from dataclasses import dataclass

from controlplane.domain.deployment import Replica, RouteState
from controlplane.domain.phases import Phase
from controlplane.domain.reasons import Reason
from controlplane.errors import Invalid
from worker.drivers.base import ReplicaSeen, ReplicaState
from worker.reconciler.draining import stop_strays, take_down
from worker.reconciler.facts import Facts
from worker.reconciler.preparing import (
    fail,
    find_slot,
    forgive,
    keep_turn,
    may_try,
    prepared,
    wait_for_slot,
)
from worker.reconciler.step import (
    Clear,
    FetchWeights,
    Place,
    Renew,
    Serve,
    Sketch,
    Start,
    Terminate,
    Unserve,
)
from worker.reconciler.target import Rendering, answers, rendering, wanted_hash

START_POLL, SILENT_POLL = 0.5, 2.0  # seconds; a watcher usually tells sooner


@dataclass(frozen=True, slots=True)
class Crew:
    """The rows of a deployment, by what they are for. `mine` render what is wanted, as many
    as are wanted; `old` don't, or are too many; `going` drain or end already."""

    wanted: str | None
    rendered: Rendering | None
    mine: tuple[Replica, ...]
    old: tuple[Replica, ...]
    going: tuple[Replica, ...]


def muster(f: Facts, rendered: Rendering | None) -> Crew:
    wanted = wanted_hash(f, rendered)
    going = tuple(r for r in f.replicas if r.route is RouteState.DRAINING or r.terminated_at)
    staying = sorted(
        (r for r in f.replicas if r not in going), key=lambda r: (not answers(f, r), r.slot)
    )
    if wanted is None:
        return Crew(None, rendered, (), tuple(staying), going)
    right = [r for r in staying if r.render_hash == wanted]
    mine = tuple(right[: f.deployment.spec.replicas.min])
    return Crew(wanted, rendered, mine, tuple(r for r in staying if r not in mine), going)


def bring_up(f: Facts, sketch: Sketch) -> None:
    """One step further up, whatever is there, and the phase that follows from it."""
    try:
        rendered = rendering(f)
    except Invalid as e:
        rendered = None
        fail(f, sketch, Reason.BAD_ENGINE_ARGUMENTS, e.message)
    crew = muster(f, rendered)
    stop_strays(f, sketch)
    take_down(f, sketch, crew.going)
    for row in crew.mine:
        _one_up(f, sketch, crew, row)
    ready = sum(answers(f, r) for r in crew.mine)
    want = f.deployment.spec.replicas.min
    if ready < want and not sketch.status.given_up:
        _fill_up(f, sketch, crew)
    _dismiss(f, sketch, crew, complete=ready >= want)
    _set_phase(f, sketch, crew, ready)


def _one_up(f: Facts, sketch: Sketch, crew: Crew, row: Replica) -> None:
    seen = f.look(row)
    ended = seen is not None and seen.state is ReplicaState.EXITED
    if row.generation != f.deployment.generation and not ended:
        sketch.do(Renew(row, f.deployment.generation))
    if seen is None:
        if row.route is RouteState.SERVING:
            sketch.do(Unserve(row))
    elif seen.state is ReplicaState.STARTING:
        _watch_start(f, sketch, row, seen)
    elif seen.state is ReplicaState.ANSWERING:
        if row.route is not RouteState.SERVING or row.endpoint != seen.endpoint:
            sketch.do(Serve(row, seen.endpoint))
    elif seen.state is ReplicaState.EXITED:
        _note_end(f, sketch, row, seen)
    else:
        _watch_silence(f, sketch, row, seen)


def _watch_start(f: Facts, sketch: Sketch, row: Replica, seen: ReplicaSeen) -> None:
    begun = max(row.placed_at, seen.started_at or row.placed_at)
    if f.now - begun >= f.limits.start_timeout:
        minutes = f.limits.start_timeout.total_seconds() / 60
        fail(f, sketch, Reason.START_TIMEOUT, f"The engine did not answer within {minutes:g} min.")
        sketch.do(Terminate(row))
        return
    sketch.say(seen.reason or Reason.STARTING_ENGINE, seen.detail)
    sketch.soon(START_POLL)


def _watch_silence(f: Facts, sketch: Sketch, row: Replica, seen: ReplicaSeen) -> None:
    """It answered before. Its route stays, because a gateway notices a refusal by itself; one
    that stays silent for as long as a drain may take is ended like one that failed."""
    sketch.soon(SILENT_POLL)
    if seen.state is not ReplicaState.SILENT:
        return
    status = f.deployment.status
    long = status.since is not None and f.now - status.since >= f.limits.drain_limit
    if long and status.phase is Phase.DEGRADED and status.reason is Reason.NOT_ANSWERING:
        fail(f, sketch, Reason.ENGINE_DIED, "The engine stayed silent and is restarted.")
        sketch.do(Terminate(row))
    else:
        sketch.say(Reason.NOT_ANSWERING, seen.detail)


def _note_end(f: Facts, sketch: Sketch, row: Replica, seen: ReplicaSeen) -> None:
    """It ended without being told to: a failure, whatever its exit status. Counted once, also
    when we died before its record was cleared. One that ended before an edit or a person's
    wake was looked at is no failure of what follows: only seeing it late must not make it one.
    Until it is cleared its row keeps the older generation, so that it stays known as such."""
    if row.route is RouteState.SERVING:
        sketch.do(Unserve(row))
    sketch.do(Clear(row))
    at = sketch.status.retry_at
    if f.begins_anew or row.generation != f.deployment.generation:
        sketch.say(seen.reason or Reason.ENGINE_DIED, seen.detail)
        sketch.soon(START_POLL)
    elif at is None or f.now >= at:
        fail(f, sketch, seen.reason or Reason.ENGINE_DIED, seen.detail)


def _fill_up(f: Facts, sketch: Sketch, crew: Crew) -> None:
    """Start what is placed and doesn't run, and place what lacks."""
    gone = [r for r in crew.mine if f.look(r) is None]
    lacking = f.deployment.spec.replicas.min - len(crew.mine)
    if not gone and lacking <= 0:
        return
    if not may_try(f, sketch) or not prepared(f, sketch):
        return
    rendered = crew.rendered
    if rendered is None or rendered.render_hash != crew.wanted:
        return
    for row in gone:
        _start(f, sketch, rendered, row)
    placed: tuple[Replica, ...] = ()
    for _ in range(lacking):
        if len(f.replicas) + len(placed) >= 2 * f.deployment.spec.replicas.min:
            _thin_out(f, sketch, crew)
            return
        devices = find_slot(f, sketch, placed)
        if devices is None:
            _make_way(f, sketch, crew)
            return
        row = _new_row(f, crew, rendered, placed, devices)
        placed = (*placed, row)
        sketch.do(Place(row))
        _start(f, sketch, rendered, row)
    if placed:
        sketch.set(waiting_since=None)


def _start(f: Facts, sketch: Sketch, rendered: Rendering, row: Replica) -> None:
    sketch.do(Start(row, rendered.resolved, rendered.model_path, rendered.draft_path))
    sketch.set(resolved=rendered.resolved, up_since=sketch.status.up_since or f.now, retry_at=None)
    sketch.say(Reason.STARTING_ENGINE)
    sketch.soon(START_POLL)


def _new_row(
    f: Facts, crew: Crew, rendered: Rendering, placed: tuple[Replica, ...], devices: tuple[str, ...]
) -> Replica:
    used = {r.slot for r in (*f.replicas, *placed)} | {s.slot for s in f.strays}
    return Replica(
        deployment_id=f.deployment.id,
        slot=next(n for n in range(len(used) + 1) if n not in used),
        render_hash=rendered.render_hash,
        generation=f.deployment.generation,
        devices=devices,
        placed_at=f.now,
    )


def _thin_out(f: Facts, sketch: Sketch, crew: Crew) -> None:
    """Edits in a row: the new may run beside one former set, not beside several. What goes
    already is waited for; else an old replica goes, first one that answers nobody."""
    sketch.say(Reason.FINISHING_REQUESTS)
    if not crew.going:
        take_down(f, sketch, crew.old[-1:])


def _make_way(f: Facts, sketch: Sketch, crew: Crew) -> None:
    """No slot is free. Its own old replica gives way, one at a time; else it waits."""
    if crew.going:
        keep_turn(f, sketch)
        sketch.say(Reason.FINISHING_REQUESTS)
    elif crew.old:
        keep_turn(f, sketch)
        take_down(f, sketch, crew.old[-1:])
        sketch.say(Reason.FINISHING_REQUESTS)
    else:
        wait_for_slot(f, sketch)


def _dismiss(f: Facts, sketch: Sketch, crew: Crew, *, complete: bool) -> None:
    """Old replicas go once the new ones answer; what answers nobody goes at once. Where it
    was given up, what failed goes as well and frees its slot."""
    done = {a.row for a in sketch.actions if hasattr(a, "row")}
    leave = [
        r
        for r in crew.old
        if r not in done and crew.wanted is not None and (complete or not answers(f, r))
    ]
    if sketch.status.given_up:
        leave += [r for r in crew.mine if not answers(f, r)]
    take_down(f, sketch, leave)


def _set_phase(f: Facts, sketch: Sketch, crew: Crew, ready: int) -> None:
    current, want = sketch.status.phase, f.deployment.spec.replicas.min
    if ready >= want:
        _complete(f, sketch, current)
    elif sketch.status.given_up:
        _give_up(f, sketch, crew, current, ready)
    elif current is Phase.QUEUED:
        if f.replicas or any(isinstance(a, Place | FetchWeights) for a in sketch.actions):
            sketch.go(Phase.STARTING)
    elif current is Phase.READY:
        sketch.go(Phase.UPDATING if f.edited else Phase.DEGRADED)
    elif current in {Phase.STARTING, Phase.WAKING}:
        if ready:
            sketch.go(Phase.DEGRADED)
    elif (current is Phase.DEGRADED and f.edited) or current is Phase.FAILED:
        sketch.go(Phase.UPDATING)


def _complete(f: Facts, sketch: Sketch, current: Phase) -> None:
    if current is Phase.QUEUED:
        sketch.go(Phase.STARTING)
        sketch.soon(0)
        return
    sketch.go(Phase.READY)
    sketch.say(None)
    first = sketch.status.first_ready_at or f.now
    sketch.set(first_ready_at=first, waiting_since=None, retry_at=None)
    if sketch.status.attempts and sketch.status.since:
        left = sketch.status.since + f.limits.steady_after - f.now
        if left.total_seconds() <= 0:
            forgive(sketch)
        else:
            sketch.soon(left.total_seconds())


def _give_up(f: Facts, sketch: Sketch, crew: Crew, current: Phase, ready: int) -> None:
    """One failed replica doesn't end a service that another one keeps up; else it failed,
    and its slots are freed. Old replicas that answer go on serving."""
    sketch.set(waiting_since=None, retry_at=None)
    if ready or current is Phase.READY:
        sketch.go(Phase.DEGRADED)
        if not ready:
            sketch.soon(0)
        return
    sketch.go(Phase.FAILED)
