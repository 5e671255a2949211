from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta

import pytest

from controlplane.domain.deployment import Wake, WakeMode
from controlplane.domain.phases import Desired, Phase
from controlplane.gateway.answers import (
    BY_PHASE,
    Standing,
    retry_after,
    standing,
    too_late,
    too_many_waiting,
    unknown_model,
    without_replica,
)
from controlplane.gateway.routes import Route, Target

ROUTE = Route("dep_1", "default", "hello", Phase.ASLEEP)
REJECT = Wake(WakeMode.REJECT, timedelta(minutes=1), 5)
AT_ONCE = {"deployment_paused", "deployment_failed", "model_not_found"}


def test_the_table_knows_every_phase() -> None:
    assert set(BY_PHASE) == set(Phase)


@pytest.mark.parametrize(
    ("phase", "desired", "expected"),
    [
        *((p, Desired.RUNNING, Standing.WAKE) for p in BY_PHASE if BY_PHASE[p] is Standing.WAKE),
        (Phase.PAUSED, Desired.PAUSED, Standing.PAUSED),
        (Phase.DRAINING, Desired.PAUSED, Standing.PAUSED),
        (Phase.WAKING, Desired.PAUSED, Standing.PAUSED),
        (Phase.PAUSED, Desired.RUNNING, Standing.WAKE),
        (Phase.FAILED, Desired.RUNNING, Standing.FAILED),
        (Phase.FAILED, Desired.PAUSED, Standing.PAUSED),
        (Phase.READY, Desired.DELETED, Standing.GONE),
        (Phase.STOPPING, Desired.DELETED, Standing.GONE),
        (Phase.STOPPING, Desired.RUNNING, Standing.GONE),
        (Phase.DELETED, Desired.DELETED, Standing.GONE),
    ],
)
def test_what_a_deployment_without_a_replica_means_for_a_request(
    phase: Phase, desired: Desired, expected: Standing
) -> None:
    assert standing(replace(ROUTE, phase=phase, desired=desired)) is expected


def test_a_replica_that_answers_serves_until_the_deployment_is_stopping() -> None:
    serving = replace(
        ROUTE, desired=Desired.DELETED, phase=Phase.READY, targets=(Target("0-a", "http://e"),)
    )
    assert not serving.gone
    assert replace(serving, phase=Phase.STOPPING).gone


@pytest.mark.parametrize("phase", [p for p in BY_PHASE if BY_PHASE[p] is Standing.WAKE])
def test_the_wake_rule_holds_or_rejects_with_a_time_to_try_again(phase: Phase) -> None:
    route = replace(ROUTE, phase=phase)
    assert without_replica(route) is None
    rejected = without_replica(replace(route, wake=REJECT))
    assert rejected is not None
    assert (rejected.status, rejected.code) == (503, "deployment_waking")
    assert rejected.retry_after is not None


@pytest.mark.parametrize(
    "route",
    [
        replace(ROUTE, phase=Phase.PAUSED, desired=Desired.PAUSED),
        replace(ROUTE, phase=Phase.FAILED, reason="CrashLoop", message="It ended."),
        replace(ROUTE, phase=Phase.STOPPING),
    ],
)
def test_where_only_a_person_helps_no_time_to_try_again_is_given(route: Route) -> None:
    answer = without_replica(route)
    assert answer is not None
    assert answer.code in AT_ONCE
    assert answer.retry_after is None
    headers = dict(answer.headers)
    assert b"retry-after" not in headers
    assert (headers.get(b"x-should-retry") == b"false") == (answer.status == 503)


def test_a_failure_tells_its_reason_what_happened_and_what_to_do() -> None:
    failed = replace(
        ROUTE, phase=Phase.FAILED, reason="GatedModel", message="A licence is wanted.", hint="Go."
    )
    answer = without_replica(failed)
    assert answer is not None
    assert answer.message == "hello has failed (GatedModel): A licence is wanted. Go."


@pytest.mark.parametrize(("start", "seconds"), [(None, 30), (0.2, 1), (41.2, 42), (100_000.0, 600)])
def test_the_time_to_try_again_is_learned_from_the_last_start_and_bounded(
    start: float | None, seconds: int
) -> None:
    route = replace(ROUTE, start_seconds=start)
    assert retry_after(route) == seconds
    assert too_late(route).retry_after == too_many_waiting(route).retry_after == seconds


def test_an_answer_is_openais_error_object_plain_and_in_a_stream() -> None:
    answer = unknown_model("x" * 5000 + "\n", ["hello"])
    error = json.loads(answer.body)["error"]
    assert (error["code"], error["param"]) == ("model_not_found", "model")
    assert error["type"] == "invalid_request_error"
    assert len(error["message"]) < 300
    parts = answer.event.split(b"\n\n")
    assert json.loads(parts[1].removeprefix(b"data: ")) == json.loads(answer.body)
    assert parts[2:] == [b"data: [DONE]", b""]
