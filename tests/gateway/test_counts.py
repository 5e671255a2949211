from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from controlplane.gateway.counts import RECENT_SECONDS, Counts


def test_a_flight_counts_once_however_often_it_ends() -> None:
    counts = Counts()
    with counts.begin("d", "0-a", 1.0) as flight:
        assert (counts.at("d", "0-a"), counts.in_flight()) == (1, {"d": 1})
        flight.end()
        flight.end()
    assert (counts.at("d", "0-a"), counts.in_flight()) == (0, {})


@given(st.lists(st.tuples(st.sampled_from("xyz"), st.sampled_from("ab"), st.booleans())))
def test_counts_are_the_flights_that_have_not_ended(
    steps: list[tuple[str, str, bool]],
) -> None:
    counts, flights = Counts(), []
    for n, (deployment, target, end_one) in enumerate(steps):
        flights.append(counts.begin(deployment, target, float(n)))
        if end_one:
            flights.pop(0).end()
        for d in "xyz":
            for t in "ab":
                expected = sum((f.deployment_id, f.target) == (d, t) for f in flights)
                assert counts.at(d, t) == expected
    for flight in flights:
        flight.end()
    assert counts.in_flight() == {}


def test_a_heartbeat_tells_ages_replicas_and_what_is_held() -> None:
    counts = Counts()
    counts.begin("busy", "0-a", 100.0)
    counts.begin("busy", "1-b", 101.0)
    counts.touch("quiet", 90.0)
    said = counts.snapshot(102.5, {"held": 4}).activity
    assert said == {
        "busy": {
            "in_flight": 2, "held": 0, "age_ms": 1500, "replicas": {"0-a": 1, "1-b": 1},
        },
        "quiet": {"in_flight": 0, "held": 0, "age_ms": 12_500, "replicas": {}},
        "held": {"in_flight": 0, "held": 4, "age_ms": 0, "replicas": {}},
    }  # fmt: skip


def test_activity_is_told_for_a_minute_and_longer_until_it_was_stored_once() -> None:
    counts = Counts()
    counts.touch("d", 0.0)
    counts.stored(counts.snapshot(RECENT_SECONDS - 1, {}))
    assert "d" in counts.snapshot(RECENT_SECONDS - 0.5, {}).activity
    late = counts.snapshot(RECENT_SECONDS * 10, {})
    assert late.activity["d"]["age_ms"] == RECENT_SECONDS * 10_000
    counts.stored(late)
    assert counts.snapshot(RECENT_SECONDS * 10, {}).activity == {}


def test_what_happens_between_a_snapshot_and_its_storing_is_not_forgotten() -> None:
    counts = Counts()
    counts.touch("d", 0.0)
    old = counts.snapshot(RECENT_SECONDS + 1, {})
    counts.touch("d", RECENT_SECONDS + 2)
    counts.stored(old)
    assert counts.snapshot(RECENT_SECONDS + 2, {}).activity["d"]["age_ms"] == 0
