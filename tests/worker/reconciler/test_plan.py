"""The plan, told as stories of one deployment."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from controlplane.domain.deployment import (
    IntentKind,
    Replicas,
    RouteState,
    ScaleDown,
    ScaleDownPolicy,
)
from controlplane.domain.phases import Desired, Phase
from controlplane.domain.reasons import EXPLANATIONS, Reason
from tests.worker.reconciler.simulation import ID, SPEC, Sim
from worker.drivers.base import (
    EffectRefused,
    EngineSeen,
    EngineState,
    ReplicaState,
    WeightsSeen,
    WeightsState,
)
from worker.reconciler.plan import plan
from worker.reconciler.step import Start, Terminate

IDLE_10S = ScaleDown(ScaleDownPolicy.IDLE, timedelta(seconds=10))
NEVER = ScaleDown(ScaleDownPolicy.NEVER, None)


def ready(sim: Sim) -> Sim:
    sim.until(Phase.READY)
    return sim


def test_a_cached_model_is_placed_and_started_at_the_first_look() -> None:
    sim = Sim()
    sim.step()
    assert sim.phase is Phase.STARTING
    assert sim.engines == 1
    sim.step()
    assert sim.phase is Phase.READY
    assert sim.trail == [Phase.STARTING, Phase.READY]
    assert [r.route for r in sim.rows] == [RouteState.SERVING]
    assert sim.status.first_ready_at is not None
    assert sim.status.observed_generation == 1


def test_what_is_ready_comes_to_rest() -> None:
    sim = ready(Sim(spec=replace(SPEC, scale_down=NEVER)))
    sim.step()
    step = sim.step()
    assert step.actions == ()
    assert step.again_in is None
    before = sim.status
    sim.step()
    assert replace(sim.status, last_active_at=None) == replace(before, last_active_at=None)


@pytest.mark.parametrize(
    ("engine", "reason"),
    [
        (EngineSeen(EngineState.INSTALLING, "0.32.0", 0.4), Reason.INSTALLING_ENGINE),
        (EngineSeen(EngineState.MISSING), Reason.ENGINE_MISSING),
    ],
)
def test_without_an_engine_it_stays_queued_and_goes_on_by_itself(
    engine: EngineSeen, reason: Reason
) -> None:
    sim = Sim()
    there, sim.world.engine = sim.world.engine, engine
    sim.run(10)
    assert (sim.phase, sim.status.reason) == (Phase.QUEUED, reason)
    assert sim.rows == []
    sim.world.engine = there
    sim.until(Phase.READY)


def test_weights_are_fetched_without_holding_a_slot() -> None:
    sim = Sim()
    sim.world.hub_is_empty = True
    sim.run(5)
    assert (sim.phase, sim.status.reason) == (Phase.STARTING, Reason.DOWNLOADING_WEIGHTS)
    assert sim.rows == []
    sim.world.weights["local/target"] = WeightsSeen(
        WeightsState.FETCHING, fraction=0.42, eta_seconds=210
    )
    sim.step()
    assert sim.status.progress is not None
    assert (sim.status.progress.fraction, sim.status.progress.eta_seconds) == (0.42, 210)
    sim.world.weights["local/target"] = WeightsSeen(
        WeightsState.READY, path="/w", revision="c0ffee"
    )
    sim.until(Phase.READY)
    assert sim.status.resolved.revision == "c0ffee"
    assert sim.world.log.count(("fetch", ID)) == 1


def test_a_permanent_download_failure_fails_at_once() -> None:
    sim = Sim()
    sim.world.hub_is_empty = True
    sim.step()
    sim.world.weights["local/target"] = WeightsSeen(
        WeightsState.FAILED, reason=Reason.GATED_MODEL, detail="Gated.", attempt_at=sim.now
    )
    sim.run(3)
    assert (sim.phase, sim.status.reason) == (Phase.FAILED, Reason.GATED_MODEL)
    assert sim.status.hint


def test_a_download_failure_of_before_is_tried_anew_after_a_resume() -> None:
    sim = Sim()
    sim.world.weights["local/target"] = WeightsSeen(
        WeightsState.FAILED,
        reason=Reason.GATED_MODEL,
        attempt_at=sim.now - timedelta(days=1),
    )
    sim.step()
    assert ("fetch", ID) in sim.world.log
    assert sim.phase is Phase.STARTING


@pytest.mark.parametrize("word", ["edit", "wake"])
def test_a_download_failure_that_is_only_seen_after_a_persons_word_is_tried_anew(
    word: str,
) -> None:
    sim = Sim()
    sim.world.hub_is_empty = True
    sim.step()
    gated = WeightsSeen(WeightsState.FAILED, reason=Reason.GATED_MODEL, attempt_at=sim.now)
    sim.world.weights["local/target"] = gated
    sim.now += timedelta(seconds=1)
    if word == "edit":
        sim.edit(scale_down=NEVER)
    else:
        sim.ask(IntentKind.WAKE)
    sim.step()
    assert (sim.phase, sim.world.log.count(("fetch", ID))) == (Phase.STARTING, 2)
    sim.world.weights["local/target"] = replace(gated, attempt_at=sim.now)
    sim.run(3)
    assert (sim.phase, sim.status.reason) == (Phase.FAILED, Reason.GATED_MODEL)


def test_a_hub_that_is_down_is_tried_again_with_growing_delays_and_not_for_ever() -> None:
    sim = Sim()
    sim.world.hub_is_empty = True
    for _ in range(3000):
        sim.step()
        if sim.phase is Phase.FAILED:
            break
        if sim.world.weights.get("local/target", WeightsSeen(WeightsState.ABSENT)).state is (
            WeightsState.FETCHING
        ):
            sim.world.weights["local/target"] = WeightsSeen(
                WeightsState.FAILED, reason=Reason.HUB_UNREACHABLE, attempt_at=sim.now
            )
    assert (sim.phase, sim.status.reason) == (Phase.FAILED, Reason.HUB_UNREACHABLE)
    assert sim.world.log.count(("fetch", ID)) == 6


def test_who_finds_no_slot_stays_queued_and_names_what_holds_it() -> None:
    sim = Sim(taken={"cpu-0": "other"})
    sim.run(10)
    assert (sim.phase, sim.status.reason) == (Phase.QUEUED, Reason.WAITING_FOR_GPU)
    assert "other" in sim.status.message
    assert sim.status.waiting_since is not None
    sim.taken = {}
    sim.until(Phase.READY)
    assert sim.status.waiting_since is None


def test_a_slot_that_lacks_after_the_download_leaves_it_starting() -> None:
    sim = Sim(taken={"cpu-0": "other"})
    sim.world.hub_is_empty = True
    sim.step()
    sim.world.weights["local/target"] = WeightsSeen(WeightsState.READY, path="/w")
    sim.run(5)
    assert (sim.phase, sim.status.reason) == (Phase.STARTING, Reason.WAITING_FOR_GPU)


def test_the_first_of_two_that_answers_serves_and_the_light_is_orange() -> None:
    sim = Sim(spec=replace(SPEC, replicas=Replicas(2, 2)), devices=2)
    sim.world.held_back.add(ID)
    sim.step()
    first = sim.world.of(ID)[0]
    sim.world.replicas[first] = replace(sim.world.replicas[first], state=ReplicaState.ANSWERING)
    sim.step()
    assert sim.phase is Phase.DEGRADED
    assert len(sim.serving) == 1
    sim.world.held_back.clear()
    sim.until(Phase.READY)
    assert len(sim.serving) == 2


def test_a_driver_that_cannot_be_asked_changes_no_phase_and_no_route() -> None:
    sim = ready(Sim())
    sim.world.unreachable = True
    before = sim.rows
    sim.run(20)
    assert (sim.phase, sim.status.reason) == (Phase.READY, Reason.DRIVER_UNREACHABLE)
    assert sim.rows == before
    sim.world.unreachable = False
    sim.run(2)
    assert (sim.phase, sim.status.reason) == (Phase.READY, None)


@pytest.mark.parametrize("desired", [Desired.PAUSED, Desired.DELETED])
def test_nothing_is_concluded_from_silence_even_when_a_person_wants_it_gone(
    desired: Desired,
) -> None:
    sim = ready(Sim())
    sim.world.unreachable = True
    sim.desire(desired)
    sim.run(600)
    assert sim.phase is Phase.READY
    assert sim.serving


def test_an_engine_that_ends_is_started_again_in_its_slot() -> None:
    sim = ready(Sim())
    sim.crash()
    sim.step(0)
    assert sim.phase is Phase.DEGRADED
    assert sim.status.reason is Reason.ENGINE_DIED
    assert "Attempt 2 of 3" in sim.status.message
    assert sim.serving == []
    assert len(sim.rows) == 1
    sim.until(Phase.READY)
    assert sim.engines == 1


def test_an_engine_that_crash_loops_never_shows_ready_and_frees_its_slot() -> None:
    sim = Sim()
    sim.world.held_back.add(ID)
    for _ in range(200):
        sim.crash()
        sim.step()
    assert (sim.phase, sim.status.reason) == (Phase.FAILED, Reason.CRASH_LOOP)
    assert Phase.READY not in sim.trail
    assert sim.rows == []
    assert sim.world.log.count(("start", ID)) == 3
    assert sim.status.hint


def test_a_crash_after_each_ready_ends_all_the_same() -> None:
    sim = Sim()
    for _ in range(60):
        sim.step()
        if sim.phase is Phase.READY:
            sim.crash()
    assert sim.phase is Phase.FAILED


def test_failures_are_forgotten_after_a_steady_while() -> None:
    sim = ready(Sim())
    for _ in range(5):
        sim.crash()
        sim.step()
        sim.until(Phase.READY)
        sim.run(90)
        assert sim.status.attempts == 0


PERMANENT = [r for r, e in EXPLANATIONS.items() if e.permanent and r is not Reason.CRASH_LOOP]


@pytest.mark.parametrize("reason", PERMANENT)
def test_a_permanent_reason_fails_at_once_and_frees_the_slot(reason: Reason) -> None:
    sim = Sim()
    sim.world.held_back.add(ID)
    sim.step()
    sim.crash(reason)
    sim.run(3)
    assert (sim.phase, sim.status.reason) == (Phase.FAILED, reason)
    assert sim.rows == []
    assert sim.world.log.count(("start", ID)) == 1


def test_a_start_that_takes_too_long_is_a_failure() -> None:
    sim = Sim()
    sim.world.held_back.add(ID)
    sim.run(700)
    assert sim.status.attempts == 1
    assert sim.world.log.count(("start", ID)) == 2


def test_a_failed_one_is_left_by_an_edit_or_a_persons_wake_and_by_no_gateway() -> None:
    sim = Sim()
    sim.world.refuses[ID] = EffectRefused(Reason.BAD_ENGINE_ARGUMENTS, "No such flag.")
    sim.until(Phase.FAILED)
    sim.run(5)
    sim.ask(IntentKind.WAKE, by="gateway:g1")
    sim.run(60)
    assert sim.phase is Phase.FAILED
    sim.ask(IntentKind.WAKE)
    sim.run(5)
    assert sim.trail[-3:] == [Phase.QUEUED, Phase.STARTING, Phase.FAILED]
    sim.world.refuses.clear()
    sim.edit(context_length=512)
    sim.until(Phase.READY)


@pytest.mark.parametrize("word", ["edit", "wake"])
def test_an_end_that_is_only_seen_after_a_persons_word_is_no_failure_of_what_follows(
    word: str,
) -> None:
    sim = ready(Sim())
    sim.crash(Reason.OUT_OF_GPU_MEMORY)
    if word == "edit":
        sim.edit(scale_down=NEVER)
    else:
        sim.ask(IntentKind.WAKE)
    sim.step(0)
    assert sim.status.reason is Reason.OUT_OF_GPU_MEMORY
    assert (sim.status.attempts, sim.serving) == (0, [])
    sim.until(Phase.READY, seconds=5)
    assert (sim.engines, len(sim.rows)) == (1, 1)
    assert Phase.FAILED not in sim.trail


def test_an_end_before_an_edit_stays_known_as_such_until_it_is_cleared() -> None:
    sim = ready(Sim())
    sim.crash(Reason.OUT_OF_GPU_MEMORY)
    sim.edit(scale_down=NEVER)
    f = sim.facts()
    sim.write(f, plan(f))  # and then we die, before any effect
    assert sim.status.observed_generation == 2
    sim.until(Phase.READY, seconds=5)
    assert (sim.status.attempts, Phase.FAILED in sim.trail) == (0, False)


@pytest.mark.parametrize("word", ["edit", "wake"])
def test_a_persons_word_buys_one_more_start_and_not_more(word: str) -> None:
    sim = ready(Sim())
    sim.crash(Reason.OUT_OF_GPU_MEMORY)
    if word == "edit":
        sim.edit(scale_down=NEVER)
    else:
        sim.ask(IntentKind.WAKE)
    sim.step()
    sim.world.held_back.add(ID)
    sim.step()
    sim.crash(Reason.OUT_OF_GPU_MEMORY)
    sim.run(60)
    assert (sim.phase, sim.status.reason) == (Phase.FAILED, Reason.OUT_OF_GPU_MEMORY)
    assert (sim.rows, sim.world.log.count(("start", ID))) == ([], 2)


def test_one_failed_replica_does_not_end_the_service() -> None:
    sim = Sim(spec=replace(SPEC, replicas=Replicas(2, 2)), devices=2)
    sim.world.held_back.add(ID)
    sim.step()
    first, second = sim.world.of(ID)
    sim.world.replicas[first] = replace(sim.world.replicas[first], state=ReplicaState.ANSWERING)
    sim.world.replicas[second] = replace(
        sim.world.replicas[second], state=ReplicaState.EXITED, reason=Reason.OUT_OF_GPU_MEMORY
    )
    sim.run(30)
    assert (sim.phase, sim.status.reason) == (Phase.DEGRADED, Reason.OUT_OF_GPU_MEMORY)
    assert len(sim.rows) == len(sim.serving) == 1


def test_an_engine_that_was_stopped_on_purpose_is_no_failure() -> None:
    sim = ready(Sim())
    sim.world.vanish(ID)
    sim.step(0)
    assert sim.phase is Phase.DEGRADED
    assert sim.status.attempts == 0
    sim.step(0)
    assert sim.phase is Phase.READY
    assert sim.engines == 1


def test_an_idle_one_drains_and_sleeps_and_a_wake_brings_it_back() -> None:
    sim = ready(Sim(spec=replace(SPEC, scale_down=IDLE_10S)))
    sim.until(Phase.ASLEEP, seconds=60)
    assert sim.trail == [Phase.STARTING, Phase.READY, Phase.DRAINING, Phase.ASLEEP]
    assert (sim.engines, sim.rows) == (0, [])
    assert sim.status.reason is Reason.IDLE_POLICY
    sim.ask(IntentKind.WAKE, by="gateway:g1")
    sim.until(Phase.READY)
    assert sim.trail[4:] == [Phase.WAKING, Phase.READY]


def test_a_request_in_flight_keeps_it_awake_however_long_it_is() -> None:
    sim = ready(Sim(spec=replace(SPEC, scale_down=IDLE_10S)))
    sim.busy()
    sim.run(300)
    assert sim.phase is Phase.READY
    sim.quiet()
    sim.run(9)
    assert sim.phase is Phase.READY
    sim.until(Phase.ASLEEP, seconds=10)


def test_the_timer_policy_sleeps_whatever_the_traffic_and_lets_requests_finish() -> None:
    timer = ScaleDown(ScaleDownPolicy.TIMER, timedelta(seconds=30))
    sim = ready(Sim(spec=replace(SPEC, scale_down=timer)))
    sim.busy()
    sim.run(40)
    assert (sim.phase, sim.status.reason) == (Phase.DRAINING, Reason.TIMER_POLICY)
    assert sim.engines == 1
    sim.quiet()
    sim.until(Phase.ASLEEP, seconds=5)


@pytest.mark.parametrize("cause", ["no gateway", "a silent one", "the database just came back"])
def test_no_information_never_means_idle(cause: str) -> None:
    sim = ready(Sim(spec=replace(SPEC, scale_down=IDLE_10S)))
    if cause == "no gateway":
        sim.gateway = None
    sim.silent_gateway = cause == "a silent one"
    sim.settled = cause != "the database just came back"
    sim.run(120)
    assert sim.phase is Phase.READY


def test_sigterm_waits_for_each_gateways_epoch_and_its_last_request() -> None:
    sim = ready(Sim())
    sim.busy()
    sim.desire(Desired.PAUSED)
    sim.run(100)
    assert sim.phase is Phase.DRAINING
    assert sim.engines == 1
    sim.quiet()
    sim.until(Phase.PAUSED, seconds=5)
    assert sim.engines == 0


def test_the_drain_limit_ends_a_drain() -> None:
    sim = ready(Sim())
    sim.busy()
    sim.desire(Desired.PAUSED)
    sim.run(299)
    assert sim.engines == 1
    sim.until(Phase.PAUSED, seconds=5)


@pytest.mark.parametrize(("running", "goes"), [(0, True), (1, False), (None, False)])
@pytest.mark.parametrize("cause", ["no gateway", "a silent one"])
def test_where_a_gateway_is_unknown_the_engines_own_counts_decide(
    running: int | None, goes: bool, cause: str
) -> None:
    sim = ready(Sim())
    if cause == "no gateway":
        sim.gateway = None
    sim.silent_gateway = cause == "a silent one"
    sim.world.change(ID, ReplicaState.ANSWERING, running=running)
    sim.desire(Desired.PAUSED)
    sim.run(60)
    assert (sim.phase is Phase.PAUSED) == goes
    sim.until(Phase.PAUSED, seconds=300)


def test_an_engine_that_ignores_sigterm_is_killed_after_the_grace() -> None:
    sim = ready(Sim())
    sim.world.ignores_term.add(ID)
    sim.desire(Desired.PAUSED)
    sim.run(10)
    assert sim.phase is Phase.DRAINING
    assert sim.rows[0].terminated_at is not None
    sim.until(Phase.PAUSED, seconds=20)


@pytest.mark.parametrize("turn", ["wake", "resume", "edit"])
def test_before_sigterm_a_drain_turns_back(turn: str) -> None:
    sim = ready(Sim())
    engine = sim.world.of(ID)
    sim.busy()
    if turn == "resume":
        sim.desire(Desired.PAUSED)
    else:
        sim.ask(IntentKind.SLEEP)
    sim.run(5)
    assert sim.phase is Phase.DRAINING
    epoch = sim.epoch
    if turn == "wake":
        sim.ask(IntentKind.WAKE, by="gateway:g1")
    elif turn == "resume":
        sim.desire(Desired.RUNNING)
    else:
        sim.edit(scale_down=NEVER)
    sim.run(3)
    assert sim.phase is Phase.READY
    assert sim.world.of(ID) == engine
    assert sim.epoch > epoch
    assert not any(isinstance(a, Terminate) for s in sim.steps for a in s.actions)


def test_after_sigterm_there_is_no_way_back_but_a_new_start() -> None:
    sim = ready(Sim())
    sim.world.ignores_term.add(ID)
    sim.ask(IntentKind.SLEEP)
    sim.run(5)
    sim.ask(IntentKind.WAKE)
    sim.until(Phase.READY, seconds=60)
    assert sim.trail[-4:] == [Phase.DRAINING, Phase.ASLEEP, Phase.WAKING, Phase.READY]
    assert sim.engines == 1


def test_a_policy_edit_rolls_nothing_and_is_observed() -> None:
    sim = ready(Sim())
    sim.edit(scale_down=NEVER)
    sim.run(10)
    assert sim.phase is Phase.READY
    assert sim.status.observed_generation == 2
    assert sim.world.log == [("start", ID)]
    assert sim.trail == [Phase.STARTING, Phase.READY]


@pytest.mark.parametrize("devices", [1, 2])
def test_an_edit_that_renders_another_engine_replaces_it(devices: int) -> None:
    sim = ready(Sim(devices=devices))
    old = sim.rows[0].render_hash
    sim.edit(context_length=1024)
    for _ in range(100):
        sim.step(0.5)
        assert sim.engines <= devices
        assert devices == 1 or sim.serving, "with a spare slot somebody always serves"
        if sim.phase is Phase.READY:
            break
    sim.run(10)
    assert sim.trail[2:] == [Phase.UPDATING, Phase.READY]
    assert [r.render_hash == old for r in sim.rows] == [False]
    assert (sim.engines, len(sim.serving)) == (1, 1)


def test_an_edit_while_the_last_update_drains_starts_no_third_engine() -> None:
    sim = ready(Sim(spec=replace(SPEC, scale_down=NEVER), devices=3))
    sim.busy()
    sim.edit(context_length=1024)
    sim.run(10)
    assert (sim.phase, sim.engines) == (Phase.READY, 2)
    (second,) = sim.serving
    sim.edit(context_length=512)
    sim.run(60)
    assert (sim.phase, sim.status.reason) == (Phase.UPDATING, Reason.FINISHING_REQUESTS)
    assert (sim.engines, sim.serving) == (2, [second])
    sim.quiet()
    sim.until(Phase.READY, seconds=5)
    sim.run(5)
    assert (sim.engines, len(sim.rows), len(sim.serving)) == (1, 1, 1)
    assert sim.serving[0].render_hash != second.render_hash


def test_edits_that_outrun_their_updates_start_no_third_engine() -> None:
    sim = Sim(spec=replace(SPEC, scale_down=NEVER), devices=3)
    for context in (None, 1024, 512, 256, 128):
        sim.edit(context_length=context)
        sim.step(0.1)
        assert sim.engines <= 2
    sim.until(Phase.READY, seconds=5)
    sim.run(5)
    assert (sim.engines, len(sim.rows), len(sim.serving)) == (1, 1, 1)


def test_fewer_replicas_of_another_engine_come_though_the_former_were_many() -> None:
    sim = ready(Sim(spec=replace(SPEC, replicas=Replicas(2, 2)), devices=3))
    sim.edit(context_length=1024, replicas=Replicas(1, 1))
    for _ in range(20):
        assert sim.serving
        sim.step(0.5)
    assert (sim.phase, sim.engines, len(sim.serving)) == (Phase.READY, 1, 1)


def test_an_update_waits_for_new_weights_while_the_old_engine_serves() -> None:
    sim = ready(Sim())
    sim.world.weights["org/other"] = WeightsSeen(WeightsState.ABSENT)
    sim.edit(model="org/other")
    sim.run(20)
    assert (sim.phase, sim.status.reason) == (Phase.UPDATING, Reason.DOWNLOADING_WEIGHTS)
    assert len(sim.serving) == 1
    sim.world.weights["org/other"] = WeightsSeen(WeightsState.READY, path="/other")
    sim.until(Phase.READY)
    assert sim.engines == 1


def test_an_update_that_fails_leaves_the_old_engine_serving_where_there_was_room() -> None:
    sim = ready(Sim(devices=2))
    old = sim.rows
    sim.world.held_back.add(ID)
    sim.edit(context_length=10**6)
    sim.step()
    assert sim.phase is Phase.UPDATING
    new = next(k for k in sim.world.of(ID) if k[2] != old[0].render_hash)
    sim.world.replicas[new] = replace(
        sim.world.replicas[new], state=ReplicaState.EXITED, reason=Reason.CONTEXT_TOO_LONG
    )
    sim.run(10)
    assert (sim.phase, sim.status.reason) == (Phase.FAILED, Reason.CONTEXT_TOO_LONG)
    assert [r.render_hash for r in sim.serving] == [old[0].render_hash]
    sim.world.held_back.clear()
    sim.edit(context_length=None)
    sim.until(Phase.READY)
    assert [r.render_hash for r in sim.rows] == [old[0].render_hash]
    assert sim.world.log.count(("start", ID)) == 2


def test_an_edit_wakes_no_sleeper_and_is_what_it_wakes_as() -> None:
    sim = ready(Sim(spec=replace(SPEC, scale_down=IDLE_10S)))
    old = sim.rows[0].render_hash
    sim.until(Phase.ASLEEP)
    sim.edit(context_length=1024)
    sim.run(30)
    assert (sim.phase, sim.status.observed_generation) == (Phase.ASLEEP, 2)
    sim.ask(IntentKind.WAKE)
    sim.until(Phase.READY)
    assert sim.rows[0].render_hash != old


def test_a_newer_slipstream_rolls_no_engine_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    sim = ready(Sim())
    monkeypatch.setattr("controlplane.domain.engines.TEMPLATE", 2)
    sim.run(10)
    sim.edit(scale_down=NEVER)
    sim.run(10)
    assert sim.status.resolved.template == 1
    assert sim.world.log == [("start", ID)]
    sim.edit(context_length=1024)
    sim.run(30)
    assert sim.status.resolved.template == 2


@pytest.mark.parametrize("phase", [Phase.ASLEEP, Phase.PAUSED])
def test_sleep_means_nothing_to_what_is_down(phase: Phase) -> None:
    sim = ready(Sim())
    if phase is Phase.PAUSED:
        sim.desire(Desired.PAUSED)
    else:
        sim.ask(IntentKind.SLEEP)
    sim.until(phase)
    sim.ask(IntentKind.SLEEP)
    sim.run(5)
    assert sim.phase is phase
    assert sim.intent is not None
    assert sim.status.handled_intent == sim.intent.number


def test_no_wake_starts_a_paused_one_not_even_after_its_resume() -> None:
    sim = ready(Sim())
    sim.desire(Desired.PAUSED)
    sim.until(Phase.PAUSED)
    sim.ask(IntentKind.WAKE, by="gateway:g1")
    sim.run(20)
    assert sim.phase is Phase.PAUSED
    sim.desire(Desired.RUNNING)
    sim.until(Phase.READY)
    assert sim.trail[-3:] == [Phase.QUEUED, Phase.STARTING, Phase.READY]


def test_an_expired_wake_wakes_nobody() -> None:
    sim = ready(Sim())
    sim.ask(IntentKind.SLEEP)
    sim.until(Phase.ASLEEP)
    sim.ask(IntentKind.WAKE, lasts=5)
    sim.now += timedelta(seconds=6)
    sim.run(20)
    assert sim.phase is Phase.ASLEEP


def test_a_wake_that_finds_no_slot_sleeps_again_once_nobody_waits() -> None:
    sim = ready(Sim())
    sim.ask(IntentKind.SLEEP)
    sim.until(Phase.ASLEEP)
    sim.taken = {"cpu-0": "never-sleeps"}
    sim.ask(IntentKind.WAKE, by="gateway:g1", lasts=30)
    sim.run(20)
    assert (sim.phase, sim.status.reason) == (Phase.WAKING, Reason.WAITING_FOR_GPU)
    assert "never-sleeps" in sim.status.message
    sim.run(30)
    assert sim.phase is Phase.ASLEEP


def test_making_room_is_declined_by_who_is_busy_by_then() -> None:
    sim = ready(Sim())
    sim.busy()
    sim.ask(IntentKind.SLEEP, by="reconciler", reason=Reason.MADE_ROOM)
    sim.run(10)
    assert sim.phase is Phase.READY
    sim.quiet()
    sim.ask(IntentKind.SLEEP, by="reconciler", reason=Reason.MADE_ROOM)
    sim.until(Phase.ASLEEP, seconds=5)
    assert sim.status.reason is Reason.MADE_ROOM


def test_delete_drains_ends_and_forgets() -> None:
    sim = ready(Sim())
    sim.busy()
    sim.desire(Desired.DELETED)
    sim.run(20)
    assert sim.phase is Phase.STOPPING
    assert sim.engines == 1
    sim.quiet()
    sim.until(Phase.DELETED, seconds=10)
    assert sim.trail[-2:] == [Phase.STOPPING, Phase.DELETED]
    assert (sim.rows, sim.engines, sim.driver.owned()) == ([], 0, frozenset())


def test_a_replica_that_nobody_placed_is_ended() -> None:
    sim = ready(Sim())
    key = sim.world.of(ID)[0]
    sim.world.replicas[ID, 5, "strange"] = replace(
        sim.world.replicas[key], slot=5, render_hash="strange"
    )
    sim.world.ignores_term.add(ID)
    sim.run(40)
    assert sim.world.of(ID) == [key]
    assert sim.phase is Phase.READY


def test_a_spec_that_cannot_be_read_says_so_and_can_still_be_deleted() -> None:
    sim = Sim(spec_error="There is no field x here.")
    sim.run(5)
    assert (sim.phase, sim.status.reason) == (Phase.QUEUED, Reason.INVALID_SPEC)
    sim.desire(Desired.DELETED)
    sim.until(Phase.DELETED, seconds=10)


def test_who_dies_between_record_and_effect_is_followed_by_the_same_start() -> None:
    sim = Sim()
    f = sim.facts()
    step = plan(f)
    sim.write(f, step)
    assert sim.engines == 0
    sim.step()
    assert any(isinstance(a, Start) for a in sim.steps[-1].actions)
    sim.until(Phase.READY)
    assert (sim.engines, len(sim.rows)) == (1, 1)


def test_an_engine_that_stays_silent_is_restarted() -> None:
    sim = ready(Sim())
    first = sim.world.replicas[sim.world.of(ID)[0]].incarnation
    sim.state(ReplicaState.SILENT)
    sim.run(5)
    assert (sim.phase, sim.status.reason) == (Phase.DEGRADED, Reason.NOT_ANSWERING)
    assert len(sim.serving) == 1
    sim.until(Phase.READY, seconds=400)
    assert sim.world.replicas[sim.world.of(ID)[0]].incarnation != first
