"""Whatever comes in whatever order: no illegal step, never more engines than wanted, rest once
the world rests, and every phase leads to deleted."""

from __future__ import annotations

import os
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import Phase as Part
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from controlplane.domain.deployment import IntentKind, Replicas, ScaleDown, ScaleDownPolicy
from controlplane.domain.durations import parse_duration
from controlplane.domain.phases import Desired, Phase
from controlplane.domain.reasons import Reason
from tests.worker.reconciler.simulation import ID, Sim
from worker.drivers.base import (
    EffectRefused,
    EngineSeen,
    EngineState,
    ReplicaState,
    WeightsSeen,
    WeightsState,
)

DEVICES = 3
MODELS = st.sampled_from(["local/target", "org/other"])
POLICIES = st.sampled_from(
    [
        ScaleDown(ScaleDownPolicy.NEVER, None),
        ScaleDown(ScaleDownPolicy.IDLE, parse_duration("10s")),
        ScaleDown(ScaleDownPolicy.TIMER, parse_duration("30s")),
    ]
)
REASONS = st.sampled_from([Reason.ENGINE_DIED, Reason.OUT_OF_GPU_MEMORY, Reason.PORT_IN_USE])


class Storm(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.sim = Sim(devices=DEVICES)
        self.most = 1
        self.last_gust: Reason | None = None
        self.last_word = "edit"

    @initialize(gust=st.none() | REASONS, word=st.sampled_from(["edit", "wake"]))
    def it_will_end_with(self, gust: Reason | None, word: str) -> None:
        self.last_gust, self.last_word = gust, word

    @rule(seconds=st.sampled_from([0.1, 1, 7, 40, 400]))
    def time_passes(self, seconds: float) -> None:
        self.sim.step(seconds)

    @rule(times=st.integers(1, 6))
    def looks(self, times: int) -> None:
        for _ in range(times):
            self.sim.step(0.3)

    @precondition(lambda self: self.sim.deployment.desired is not Desired.DELETED)
    @rule(desired=st.sampled_from([Desired.RUNNING, Desired.PAUSED]))
    def a_person_wishes(self, desired: Desired) -> None:
        self.sim.desire(desired)

    @rule(
        kind=st.sampled_from(IntentKind),
        by=st.sampled_from(["key:admin", "gateway:g1", "reconciler"]),
        reason=st.sampled_from([None, Reason.MADE_ROOM]),
        lasts=st.sampled_from([None, 5.0, 60.0]),
    )
    def somebody_asks(
        self, kind: IntentKind, by: str, reason: Reason | None, lasts: float | None
    ) -> None:
        self.sim.ask(kind, by, reason if kind is IntentKind.SLEEP else None, lasts)

    @precondition(lambda self: self.sim.deployment.desired is not Desired.DELETED)
    @rule(
        policy=POLICIES,
        model=MODELS,
        context=st.sampled_from([None, 512, 1024]),
        count=st.integers(1, 2),
    )
    def an_edit(self, policy: ScaleDown, model: str, context: int | None, count: int) -> None:
        self.sim.edit(
            scale_down=policy,
            model=model,
            context_length=context,
            replicas=Replicas(count, count),
        )
        self.most = max(self.most, count)

    @rule(reason=REASONS)
    def engines_end(self, reason: Reason) -> None:
        self.sim.crash(reason)

    @rule(state=st.sampled_from([ReplicaState.SILENT, ReplicaState.ANSWERING]))
    def engines_change(self, state: ReplicaState) -> None:
        self.sim.state(state)

    @rule()
    def engines_vanish(self) -> None:
        self.sim.world.vanish(ID)

    @rule(on=st.booleans())
    def the_driver_is_cut_off(self, on: bool) -> None:
        self.sim.world.unreachable = on

    @rule(on=st.booleans(), term=st.booleans())
    def engines_are_stubborn(self, on: bool, term: bool) -> None:
        chosen = self.sim.world.held_back
        chosen.add(ID) if on else chosen.discard(ID)
        chosen = self.sim.world.ignores_term
        chosen.add(ID) if term else chosen.discard(ID)

    @rule(on=st.booleans())
    def starts_are_refused(self, on: bool) -> None:
        if on:
            self.sim.world.refuses[ID] = EffectRefused(Reason.PORT_IN_USE, "Taken.")
        else:
            self.sim.world.refuses.clear()

    @rule(state=st.sampled_from(EngineState))
    def the_engine_is(self, state: EngineState) -> None:
        self.sim.world.engine = EngineSeen(state, "0.32.0")

    @rule(model=MODELS, state=st.sampled_from(WeightsState))
    def weights_are(self, model: str, state: WeightsState) -> None:
        failed = state is WeightsState.FAILED
        self.sim.world.weights[model] = WeightsSeen(
            state,
            path=f"/weights/{model}" if state is WeightsState.READY else None,
            reason=Reason.HUB_UNREACHABLE if failed else None,
            attempt_at=self.sim.now if failed else None,
        )

    @rule(taken=st.sets(st.integers(0, DEVICES - 1)))
    def others_hold(self, taken: set[int]) -> None:
        mine = {d for r in self.sim.rows for d in r.devices}
        wanted = {f"cpu-{n}" for n in taken}
        self.sim.taken = dict.fromkeys(wanted - mine, "other")

    @rule(count=st.integers(0, 2), held=st.integers(0, 1))
    def requests_come(self, count: int, held: int) -> None:
        if self.sim.gateway is not None:
            self.sim.busy(count, held)

    @rule(there=st.booleans(), silent=st.booleans(), settled=st.booleans())
    def gateways_are(self, there: bool, silent: bool, settled: bool) -> None:
        from worker.reconciler.facts import GatewaySaid

        self.sim.gateway = (self.sim.gateway or GatewaySaid(True, 1)) if there else None
        self.sim.silent_gateway, self.sim.settled = silent, settled

    @invariant()
    def never_too_many_engines(self) -> None:
        # An update may run the new beside the old, a replica of each at most.
        assert self.sim.engines <= min(DEVICES, 2 * self.most)

    @invariant()
    def a_route_serves_only_what_is_placed_and_not_told_to_end(self) -> None:
        assert all(r.terminated_at is None for r in self.sim.serving)

    @invariant()
    def what_is_down_holds_nothing(self) -> None:
        if self.sim.phase in {Phase.DELETED, Phase.QUEUED}:
            assert self.sim.rows == []

    def teardown(self) -> None:
        """The storm ends, perhaps with engines that end unseen: the world answers, and after
        the last word nobody asks for anything more."""
        sim = self.sim
        if self.last_gust is not None:
            sim.crash(self.last_gust)
        sim.world.unreachable, sim.silent_gateway, sim.settled = False, False, True
        self.engines_are_stubborn(False, False)
        sim.world.refuses.clear()
        sim.world.weights.clear()
        sim.world.engine = EngineSeen(EngineState.READY, "0.32.0")
        sim.taken = {}
        if sim.gateway is not None:
            sim.quiet()
        self._comes_to_rest()
        sim.desire(Desired.DELETED)
        sim.until(Phase.DELETED, seconds=900)
        assert (sim.rows, sim.engines) == ([], 0)

    def _comes_to_rest(self) -> None:
        sim = self.sim
        sim.state(ReplicaState.ANSWERING)
        if sim.deployment.desired is Desired.RUNNING:
            self._the_last_word()
        for _ in range(3000):
            before = replace(sim.status, last_active_at=None)
            step = sim.step(1)
            still = replace(sim.status, last_active_at=None) == before and not step.actions
            if still and step.again_in is None:
                break
        else:
            raise AssertionError(f"no rest: {sim.status} {sim.rows} {step.actions}")
        if sim.deployment.desired is Desired.PAUSED:
            assert sim.phase is Phase.PAUSED
        elif sim.deployment.desired is Desired.RUNNING:
            # An edit wakes nobody, so what slept may sleep on; a wake must end in ready.
            ends = {Phase.READY} if self.last_word == "wake" else {Phase.READY, Phase.ASLEEP}
            assert sim.phase in ends
            wanted = sim.deployment.spec.replicas.min if sim.phase is Phase.READY else 0
            assert sim.engines == len(sim.rows) == len(sim.serving) == wanted

    def _the_last_word(self) -> None:
        """Whatever failed in the storm, an edit leaves it behind, and so does a wake alone;
        after that a policy may still say sleep, until it is never and somebody wakes it."""
        sim, never = self.sim, ScaleDown(ScaleDownPolicy.NEVER, None)
        if self.last_word == "wake":
            sim.ask(IntentKind.WAKE, lasts=None)
            sim.until(Phase.READY, Phase.ASLEEP, seconds=900)
        sim.edit(scale_down=never)
        if self.last_word == "wake":
            sim.ask(IntentKind.WAKE, lasts=None)


# The same storms at every run, and no minutes spent on shrinking: what fails here fails again
# with SLIPSTREAM_STORM=shrunk, which finds the shortest way to it. `long` looks for new ones.
_LOOSE = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow], database=None)
_FIND = [Part.explicit, Part.generate]
settings.register_profile(
    "steady", _LOOSE, max_examples=400, stateful_step_count=40, derandomize=True, phases=_FIND
)
settings.register_profile("shrunk", settings.get_profile("steady"), phases=[*_FIND, Part.shrink])
settings.register_profile(
    "long", _LOOSE, max_examples=5000, stateful_step_count=60, print_blob=True
)

TestStorm = Storm.TestCase
STORM = os.environ.get("SLIPSTREAM_STORM", "steady")
TestStorm.settings = settings.get_profile(STORM)
TestStorm = pytest.mark.timeout(280 if STORM == "steady" else 3600)(TestStorm)
