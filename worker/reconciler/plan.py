"""What the reconciler does next for one deployment. Pure: the same facts give the same step.

Whatever the facts are, the step is legal by the transition table; when the world stops
changing, repeated steps come to rest; and never are there more engines than wanted.
"""

from __future__ import annotations

from datetime import datetime

from controlplane.domain.deployment import (
    IntentKind,
    ReplicaCounts,
    RouteState,
    ScaleDownPolicy,
    Status,
)
from controlplane.domain.idle import sleeps_at
from controlplane.domain.phases import RESTING, Desired, Phase
from controlplane.domain.reasons import EXPLANATIONS, Reason
from worker.drivers.base import EffectRefused, ReplicaState
from worker.reconciler.draining import stop_strays, take_down
from worker.reconciler.facts import Facts, activity
from worker.reconciler.preparing import fail, forgive
from worker.reconciler.rising import bring_up
from worker.reconciler.step import Forget, Serve, Sketch, Step
from worker.reconciler.target import answers

UNREACHABLE_POLL = 3.0  # seconds
_UP = frozenset({Phase.STARTING, Phase.WAKING, Phase.READY, Phase.DEGRADED, Phase.UPDATING})
_CLOCK_RUNS = frozenset({Phase.READY, Phase.DEGRADED})
_QUIET = RESTING | {Phase.FAILED, Phase.DRAINING}  # their reason is worth more than a silence
_TOO_EARLY = frozenset({Reason.INSTALLING_ENGINE, Reason.ENGINE_MISSING, Reason.WAITING_FOR_GPU})
_WHY_ASLEEP = frozenset(
    {Reason.IDLE_POLICY, Reason.TIMER_POLICY, Reason.SLEEP_REQUESTED, Reason.MADE_ROOM}
)


def plan(f: Facts) -> Step:
    """The next step. Without an observation nothing changes but the reason."""
    d = f.deployment
    sketch = Sketch(d.status, f.now)
    if d.status.phase is Phase.DELETED:
        return sketch.step()
    if f.seen is None:
        return _untold(f, sketch)
    if d.status.reason is Reason.DRIVER_UNREACHABLE:
        sketch.say(None)
    _note_activity(f, sketch)
    _decide(f, sketch)
    _count(f, sketch)
    _set_alarm(f, sketch)
    return sketch.step()


def _untold(f: Facts, sketch: Sketch) -> Step:
    if f.deployment.status.phase not in _QUIET or f.replicas:
        sketch.soon(UNREACHABLE_POLL)
    if f.deployment.status.phase not in _QUIET:
        sketch.say(Reason.DRIVER_UNREACHABLE)
    return sketch.step()


def _note_activity(f: Facts, sketch: Sketch) -> None:
    """The newest sign of use, kept in the status so that no restart forgets it."""
    act = activity(f.gateways, settled=f.settled)
    last = f.now if act.in_flight else act.last_byte_at
    if last is not None:
        last = min(last, f.now)
        sketch.set(last_active_at=max(last, sketch.status.last_active_at or last))


def _decide(f: Facts, sketch: Sketch) -> None:
    d, phase = f.deployment, sketch.status.phase
    if d.desired is Desired.DELETED or phase is Phase.STOPPING:
        _delete(f, sketch)
    elif phase is Phase.DRAINING:
        _drain(f, sketch)
    elif phase is Phase.FAILED:
        _failed(f, sketch)
    elif phase in RESTING:
        _rest(f, sketch)
    elif d.desired is Desired.PAUSED:
        _leave(f, sketch, Phase.PAUSED, Reason.PAUSED_BY_PERSON)
    elif f.spec_error:
        sketch.say(Reason.INVALID_SPEC, f.spec_error)
    elif why := _why_sleep(f, sketch):
        _leave(f, sketch, Phase.ASLEEP, why)
    else:
        _run(f, sketch)


def _delete(f: Facts, sketch: Sketch) -> None:
    begun = sketch.status.phase is Phase.STOPPING
    sketch.go(Phase.STOPPING)
    sketch.say(Reason.DELETE_REQUESTED)
    sketch.set(waiting_since=None, after_drain=None, sleeps_at=None)
    stop_strays(f, sketch)
    take_down(f, sketch, f.replicas)
    if not begun:
        sketch.soon(0)
    elif f.nothing_left:
        sketch.do(Forget())
        sketch.go(Phase.DELETED)
        sketch.say(None, "Deleted; cached weights are kept.")


def _run(f: Facts, sketch: Sketch) -> None:
    """It should be up. A fresh edit or a person's wake forgets failures before it."""
    if f.begins_anew:
        forgive(sketch)
        sketch.set(retry_at=f.now)  # a download that failed until now is not a new failure
    if f.asks_for(IntentKind.WAKE):
        _handle_intent(f, sketch)
        sketch.set(last_active_at=max(f.now, sketch.status.last_active_at or f.now))
    if _wake_expired(f):
        _leave(f, sketch, Phase.ASLEEP, Reason.IDLE_POLICY)
        return
    bring_up(f, sketch)
    sketch.set(observed_generation=f.deployment.generation)


def _wake_expired(f: Facts) -> bool:
    """A wake that found no slot before its demand ended goes back to sleep."""
    status, act = f.deployment.status, activity(f.gateways, settled=f.settled)
    waits = status.phase is Phase.WAKING and status.reason is Reason.WAITING_FOR_GPU
    demand = f.intent is not None and f.intent.kind is IntentKind.WAKE and f.intent.alive(f.now)
    return waits and not f.replicas and not demand and act.known and not act.in_flight


def _why_sleep(f: Facts, sketch: Sketch) -> Reason | None:
    """Why it should sleep now: somebody's word, or its policy; None: it should not."""
    act = activity(f.gateways, settled=f.settled)
    if f.asks_for(IntentKind.SLEEP):
        assert f.intent is not None
        reason = f.intent.reason if f.intent.reason in _WHY_ASLEEP else Reason.SLEEP_REQUESTED
        made_room = reason is Reason.MADE_ROOM
        _handle_intent(f, sketch)
        return None if made_room and (act.in_flight or not act.known) else reason
    if f.asks_for(IntentKind.WAKE) or sketch.status.phase not in _CLOCK_RUNS or not act.known:
        return None
    at = _sleeps_at(f, sketch.status)
    if at is None or f.now < at:
        return None
    timer = f.deployment.spec.scale_down.policy is ScaleDownPolicy.TIMER
    return Reason.TIMER_POLICY if timer else Reason.IDLE_POLICY


def _leave(f: Facts, sketch: Sketch, to: Phase, reason: Reason) -> None:
    """All replicas go, then `to`. Where none ever came it goes there at once."""
    sketch.set(waiting_since=None, progress=None)
    if sketch.status.phase is Phase.QUEUED:
        take_down(f, sketch, f.replicas)
        stop_strays(f, sketch)
        if f.nothing_left:
            _arrive(sketch, to, reason)
        return
    sketch.go(Phase.DRAINING)
    sketch.say(reason, EXPLANATIONS[Reason.FINISHING_REQUESTS].sentence, "")
    sketch.set(after_drain=to)
    _drain_on(f, sketch)


def _arrive(sketch: Sketch, to: Phase, reason: Reason) -> None:
    sketch.go(to)
    sketch.say(reason)
    forgive(sketch)
    sketch.set(after_drain=None, sleeps_at=None, waiting_since=None)


def _drain(f: Facts, sketch: Sketch) -> None:
    """All go. A wake, a resume or an edit turns it back as long as SIGTERM was not sent."""
    to = sketch.status.after_drain or Phase.ASLEEP
    if f.deployment.desired is Desired.PAUSED:
        sketch.set(after_drain=Phase.PAUSED)
        sketch.say(Reason.PAUSED_BY_PERSON, EXPLANATIONS[Reason.FINISHING_REQUESTS].sentence, "")
    elif to is Phase.PAUSED or f.asks_for(IntentKind.WAKE) or f.edited:
        if _turn_back(f, sketch):
            return
    elif f.asks_for(IntentKind.SLEEP):
        _handle_intent(f, sketch)
    _drain_on(f, sketch)


def _drain_on(f: Facts, sketch: Sketch) -> None:
    stop_strays(f, sketch)
    take_down(f, sketch, f.replicas)
    if not f.nothing_left:
        return
    to = sketch.status.after_drain or Phase.ASLEEP
    if sketch.status.phase is Phase.DRAINING and f.deployment.status.phase is Phase.DRAINING:
        _arrive(sketch, to, _why_rest(f, to))
    sketch.soon(0)


def _why_rest(f: Facts, to: Phase) -> Reason:
    if to is Phase.PAUSED:
        return Reason.PAUSED_BY_PERSON
    reason = f.deployment.status.reason
    if reason in _WHY_ASLEEP:
        return reason
    timer = f.deployment.spec.scale_down.policy is ScaleDownPolicy.TIMER
    return Reason.TIMER_POLICY if timer else Reason.IDLE_POLICY


def _turn_back(f: Facts, sketch: Sketch) -> bool:
    """Let draining replicas serve again; False when there is none that still could."""
    back = [r for r in f.replicas if r.terminated_at is None and answers(f, r)]
    if not back:
        return False
    for row in back:
        seen = f.look(row)
        assert seen is not None
        sketch.do(Serve(row, seen.endpoint))
    take_down(f, sketch, [r for r in f.replicas if r not in back])
    complete = len(back) >= f.deployment.spec.replicas.min
    sketch.go(Phase.READY if complete else Phase.DEGRADED)
    sketch.say(None if complete else Reason.STARTING_ENGINE)
    sketch.set(after_drain=None, last_active_at=f.now)
    if f.asks_for(IntentKind.WAKE):
        _handle_intent(f, sketch)
    sketch.soon(0)
    return True


def _failed(f: Facts, sketch: Sketch) -> None:
    """Left by people only: a resume, an edit, a person's wake, a pause. What answers still,
    because it is of an older generation, goes on serving."""
    pause = f.deployment.desired is Desired.PAUSED
    stays = [r for r in f.replicas if answers(f, r) and r.terminated_at is None and not pause]
    stays = [r for r in stays if r.route is not RouteState.DRAINING]
    if f.begins_anew and not pause and not f.spec_error:
        if stays:
            _run(f, sketch)
            return
        if f.nothing_left:
            _queue_again(f, sketch)
            return
    elif f.intent is not None and not f.woken_by_person:
        _handle_intent(f, sketch)
    stop_strays(f, sketch)
    take_down(f, sketch, [r for r in f.replicas if r not in stays])
    if pause and f.nothing_left:
        _arrive(sketch, Phase.PAUSED, Reason.PAUSED_BY_PERSON)


def _queue_again(f: Facts, sketch: Sketch) -> None:
    sketch.go(Phase.QUEUED)
    forgive(sketch)
    sketch.say(None)
    sketch.set(
        observed_generation=f.deployment.generation,
        first_ready_at=None,
        up_since=None,
        waiting_since=None,
    )
    if f.asks_for(IntentKind.WAKE):
        _handle_intent(f, sketch)
    sketch.soon(0)


def _rest(f: Facts, sketch: Sketch) -> None:
    """Asleep or paused: nothing runs. An edit is noted and wakes nobody."""
    d, phase = f.deployment, sketch.status.phase
    stop_strays(f, sketch)
    take_down(f, sketch, f.replicas)
    if not f.spec_error:
        sketch.set(observed_generation=d.generation)
    if not f.nothing_left:
        return
    if phase is Phase.PAUSED:
        if d.desired is Desired.RUNNING:
            _queue_again(f, sketch)
        else:
            _handle_intent(f, sketch)
    elif d.desired is Desired.PAUSED:
        _arrive(sketch, Phase.PAUSED, Reason.PAUSED_BY_PERSON)
    elif f.asks_for(IntentKind.SLEEP):
        _handle_intent(f, sketch)
    elif f.asks_for(IntentKind.WAKE) and not f.spec_error:
        sketch.go(Phase.WAKING)
        forgive(sketch)
        sketch.say(Reason.STARTING_ENGINE)
        sketch.set(first_ready_at=None, up_since=None)
        _run(f, sketch)


def _handle_intent(f: Facts, sketch: Sketch) -> None:
    if f.intent is not None:
        sketch.set(handled_intent=max(f.intent.number, sketch.status.handled_intent))


def _sleeps_at(f: Facts, status: Status) -> datetime | None:
    return sleeps_at(
        f.deployment.spec.scale_down,
        first_ready_at=status.first_ready_at,
        up_since=status.up_since,
        last_active_at=status.last_active_at,
        activity=activity(f.gateways, settled=f.settled),
    )


def _set_alarm(f: Facts, sketch: Sketch) -> None:
    """When its policy wants sleep, as things stand, and a look at that moment."""
    runs = sketch.status.phase in _CLOCK_RUNS and not f.spec_error
    at = _sleeps_at(f, sketch.status) if runs else None
    sketch.set(sleeps_at=at)
    if at is not None:
        sketch.soon(max((at - f.now).total_seconds(), 1.0))


def _count(f: Facts, sketch: Sketch) -> None:
    d, phase = f.deployment, sketch.status.phase
    states = [
        s.state for r in f.replicas if r.route is not RouteState.DRAINING and (s := f.look(r))
    ]
    sketch.set(
        replicas=ReplicaCounts(
            wanted=d.spec.replicas.min if phase in _UP or phase is Phase.QUEUED else 0,
            ready=states.count(ReplicaState.ANSWERING),
            starting=states.count(ReplicaState.STARTING),
            draining=sum(r.route is RouteState.DRAINING for r in f.replicas),
            failed=states.count(ReplicaState.EXITED),
        )
    )


def refused(f: Facts, status: Status, e: EffectRefused) -> Step:
    """The status after an effect that was refused: a failure like any other, unless it only
    came too early."""
    sketch = Sketch(status, f.now)
    if e.reason in _TOO_EARLY:
        sketch.say(e.reason, e.detail)
        sketch.soon(UNREACHABLE_POLL)
    else:
        fail(f, sketch, e.reason, e.detail)
        sketch.soon(0 if sketch.status.given_up else f.limits.retry_cap.total_seconds())
    return sketch.step()


def untold_effect(f: Facts, status: Status) -> Step:
    """The status after an effect that could not be done because nobody answered."""
    sketch = Sketch(status, f.now)
    if status.phase not in _QUIET:
        sketch.say(Reason.DRIVER_UNREACHABLE)
    sketch.soon(UNREACHABLE_POLL)
    return sketch.step()
