"""What a start needs before it: the engine, the weights, a slot. Pure."""

from __future__ import annotations

from controlplane.domain.deployment import Progress, Replica
from controlplane.domain.phases import Phase
from controlplane.domain.placement import (
    Holder,
    Placed,
    Waiter,
    Waits,
    make_room,
    next_to_go,
    place,
)
from controlplane.domain.reasons import EXPLANATIONS, Reason
from worker.drivers.base import EngineState, WeightsOrder, WeightsSeen, WeightsState
from worker.reconciler.facts import Facts
from worker.reconciler.step import FetchWeights, MakeRoom, Sketch
from worker.reconciler.target import orders

INSTALL_POLL, FETCH_POLL, WAIT_POLL, WAKE_POLL = 2.0, 1.0, 5.0, 0.5  # seconds
_OF_HUB = frozenset(
    {
        Reason.DOWNLOADING_WEIGHTS,
        Reason.HUB_RATE_LIMITED,
        Reason.HUB_UNREACHABLE,
        Reason.DOWNLOAD_FAILED,
    }
)
_PATIENCE = 2  # a hub is given this many times the attempts of an engine


def prepared(f: Facts, sketch: Sketch) -> bool:
    """True when engine and weights are there; else the sketch says what lacks and gets it."""
    return _tier_is_known(f, sketch) and _engine_is_there(f, sketch) and _weights_are(f, sketch)


def fail(f: Facts, sketch: Sketch, reason: Reason, detail: str) -> None:
    """One more failure in a row: tried again after a growing delay, or given up, where trying
    again can't help or has not helped."""
    words = EXPLANATIONS[reason]
    most = f.limits.attempts * (_PATIENCE if reason in _OF_HUB else 1)
    attempts, sentence = sketch.status.attempts + 1, detail or words.sentence
    last = words.permanent or attempts >= most
    delay = f.limits.delay(attempts)
    sketch.set(attempts=attempts, given_up=last, retry_at=None if last else f.now + delay)
    if words.permanent:
        sketch.say(reason, sentence)
    elif last and reason in _OF_HUB:
        sketch.say(reason, f"{sentence} That was attempt {attempts} of {most}.")
    elif last:
        loop = EXPLANATIONS[Reason.CRASH_LOOP]
        own = reason is not Reason.ENGINE_DIED and words.hint
        text = f"{loop.sentence} Attempt {attempts} of {most}: {sentence}"
        sketch.say(Reason.CRASH_LOOP, text, own or loop.hint)
    else:
        follows = f"Attempt {attempts + 1} of {most} follows in {delay.total_seconds():g} s."
        sketch.say(reason, f"{sentence} {follows}")
        sketch.soon(delay.total_seconds())


def forgive(sketch: Sketch) -> None:
    """Failures so far count no more."""
    sketch.set(attempts=0, given_up=False, retry_at=None)


def may_try(f: Facts, sketch: Sketch) -> bool:
    at = sketch.status.retry_at
    if at is not None and f.now < at:
        sketch.soon((at - f.now).total_seconds())
        return False
    return True


def _tier_is_known(f: Facts, sketch: Sketch) -> bool:
    if f.tier is None:
        name = f.deployment.spec.tier
        sketch.say(
            Reason.WAITING_FOR_GPU, f'There is no tier "{name}" here.', "Choose another tier."
        )
    return f.tier is not None


def _engine_is_there(f: Facts, sketch: Sketch) -> bool:
    assert f.seen is not None
    engine = f.seen.engine
    if engine.state is EngineState.READY:
        return True
    if engine.state is EngineState.INSTALLING:
        sketch.say(
            Reason.INSTALLING_ENGINE, engine.detail, progress=Progress("install", engine.fraction)
        )
    else:
        sketch.say(Reason.ENGINE_MISSING, engine.detail)
    sketch.soon(INSTALL_POLL)
    return False


def _weights_are(f: Facts, sketch: Sketch) -> bool:
    assert f.seen is not None
    for order in orders(f.deployment):
        seen = f.seen.weights.get(order.model) or WeightsSeen(WeightsState.ABSENT)
        if seen.state is not WeightsState.READY:
            _get_weights(f, sketch, order, seen)
            return False
    if sketch.status.reason in _OF_HUB and sketch.status.attempts:
        forgive(sketch)
    return True


def _get_weights(f: Facts, sketch: Sketch, order: WeightsOrder, seen: WeightsSeen) -> None:
    if seen.state is WeightsState.FETCHING:
        sketch.say(
            Reason.DOWNLOADING_WEIGHTS,
            f"Downloading the weights of {order.model}.",
            progress=Progress("download", seen.fraction, seen.eta_seconds),
        )
        sketch.soon(FETCH_POLL)
        return
    if seen.state is WeightsState.FAILED and _is_new_failure(sketch, seen):
        detail = seen.detail or f"The weights of {order.model} could not be fetched."
        fail(f, sketch, seen.reason or Reason.DOWNLOAD_FAILED, detail)
        if sketch.status.retry_at is not None and seen.retry_at is not None:
            sketch.set(retry_at=max(sketch.status.retry_at, seen.retry_at))
        return
    if may_try(f, sketch):
        sketch.do(FetchWeights(order))
        sketch.say(Reason.DOWNLOADING_WEIGHTS, progress=Progress("download"))
        sketch.soon(FETCH_POLL)


def _is_new_failure(sketch: Sketch, seen: WeightsSeen) -> bool:
    """A failed try counts once, and only when it ended within this phase: an older one was
    somebody else's, or was before a person put right what was wrong. One without a time is no
    try at all: the weights are not where a person said."""
    status = sketch.status
    if seen.attempt_at is None:
        return status.retry_at is None or sketch.now >= status.retry_at
    if status.phase is Phase.QUEUED or (status.since and seen.attempt_at < status.since):
        return False
    return status.retry_at is None or seen.attempt_at >= status.retry_at


def find_slot(f: Facts, sketch: Sketch, rows: tuple[Replica, ...]) -> tuple[str, ...] | None:
    """Devices for one more replica, or None. `rows` are those placed in this step already."""
    world, tier = f.world, f.tier
    if world.devices is None or tier is None:
        return ()
    found = place(tier, _me(f, sketch), world.devices, _taken(f, rows), world.waiters)
    return found.devices if isinstance(found, Placed) else None


def wait_for_slot(f: Facts, sketch: Sketch) -> None:
    """No slot is free: say what holds it, keep one's turn, and where somebody waits for this
    deployment ask another one to sleep."""
    world, tier = f.world, f.tier
    assert tier is not None
    assert world.devices is not None
    found = place(tier, _me(f, sketch), world.devices, _taken(f, ()), world.waiters)
    others = [h for h in world.holders if h.id != f.deployment.id]
    if isinstance(found, Waits):
        sketch.say(Reason.WAITING_FOR_GPU, _waits(f, found), _way_out(f, others))
    sketch.set(waiting_since=sketch.status.waiting_since or f.now)
    sketch.soon(WAKE_POLL if f.waking else WAIT_POLL)
    if not f.waking:
        return
    for victim in make_room(
        tier,
        world.devices,
        set(world.taken) - world.leaving,
        [h for h in others if not world.leaving.intersection(h.devices)],
        now=f.now,
        minimum_uptime=f.limits.minimum_uptime,
    ):
        sketch.do(MakeRoom(victim.id, victim.name))


def _way_out(f: Facts, others: list[Holder]) -> str:
    """What ends the wait: time, or a person's word. Seconds are rounded up to tens, so that the
    words don't change with every look."""
    if not f.waking:
        return (
            f"It starts when a slot is free. To take one now: slipstream wake {f.deployment.name}"
        )
    found = next_to_go(others, now=f.now, minimum_uptime=f.limits.minimum_uptime)
    if found is None:
        return ""
    name, left = found
    tens = -(-left.total_seconds() // 10) * 10
    return f"{name} may sleep for it in {tens:g} s; sooner: slipstream sleep {name}"


def keep_turn(f: Facts, sketch: Sketch) -> None:
    """Its own former replica gives its slot up for the next one: nobody comes between."""
    sketch.set(waiting_since=sketch.status.waiting_since or f.deployment.created_at)


def _me(f: Facts, sketch: Sketch) -> Waiter:
    d = f.deployment
    since = sketch.status.waiting_since or f.now
    up = sketch.status.phase in {Phase.UPDATING, Phase.DEGRADED, Phase.READY}
    assert f.tier is not None
    return Waiter(d.id, d.name, f.tier, since, waking=f.waking or up)


def _taken(f: Facts, rows: tuple[Replica, ...]) -> dict[str, str]:
    mine = {device: f.deployment.name for row in rows for device in row.devices}
    return {**f.world.taken, **mine}


def _waits(f: Facts, found: Waits) -> str:
    tier = f.deployment.spec.tier
    if found.held_by:
        text = f'No slot of tier "{tier}" is free: held by {_listed(found.held_by)}'
    elif found.behind:
        text = f'The free slot of tier "{tier}" goes to others first'
    else:
        return f'No device here serves tier "{tier}".'
    return text + (f"; behind {_listed(found.behind)}." if found.behind else ".")


def _listed(names: tuple[str, ...]) -> str:
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
