from __future__ import annotations

import pytest

from controlplane.gateway.refusals import FIRST_SECONDS, LONGEST_SECONDS, Refusals
from controlplane.gateway.waiting import Bound, Place, WaitingRoom


def _enter(room: WaitingRoom, deployment: str, size: int = 1, most: int = 100) -> Place:
    place = room.enter(deployment, size, most)
    assert isinstance(place, Place)
    return place


def test_places_are_bounded_for_each_deployment_and_come_back_once() -> None:
    room = WaitingRoom(most_bytes=1000)
    first, second = _enter(room, "a", most=2), _enter(room, "a", most=2)
    assert room.enter("a", 1, 2) is Bound.PLACES
    assert isinstance(room.enter("b", 1, 2), Place)
    first.leave()
    first.leave()
    third = _enter(room, "a", most=2)
    assert room.held() == {"a": 2, "b": 1}
    second.leave()
    third.leave()
    assert room.held() == {"b": 1}
    assert not room.waits("a")


def test_bytes_are_bounded_over_all_deployments() -> None:
    room = WaitingRoom(most_bytes=10)
    with _enter(room, "a", size=6):
        assert room.enter("b", 5, 100) is Bound.BYTES
        _enter(room, "b", size=4).leave()
    assert isinstance(room.enter("b", 10, 100), Place)


def test_the_bell_rings_for_the_herd_that_is_meant() -> None:
    room = WaitingRoom(most_bytes=1000)
    mine, other = _enter(room, "a"), _enter(room, "b")
    room.ring({"a", "nobody"})
    assert (mine.bell.is_set(), other.bell.is_set()) == (True, False)


def test_closing_tells_everybody() -> None:
    room = WaitingRoom(most_bytes=1000)
    places = [_enter(room, "a"), _enter(room, "b")]
    room.close()
    assert room.closed
    assert all(p.bell.is_set() for p in places)


def test_a_replica_that_refuses_is_left_out_for_a_growing_while_with_a_cap() -> None:
    refusals, now, lengths = Refusals(), 0.0, []
    for _ in range(8):
        refusals.note("http://e", now)
        lengths.append(refusals.left_out("http://e", now))
        now += lengths[-1]
        assert refusals.left_out("http://e", now) == 0
    first = [FIRST_SECONDS, FIRST_SECONDS * 2, FIRST_SECONDS * 4]
    assert lengths[:3] == pytest.approx(first)
    assert lengths[-1] == pytest.approx(LONGEST_SECONDS)


def test_a_herd_that_is_refused_together_counts_once_and_an_answer_clears_it() -> None:
    refusals = Refusals()
    for _ in range(50):
        refusals.note("http://e", 1.0)
    assert refusals.left_out("http://e", 1.0) == pytest.approx(FIRST_SECONDS)
    refusals.clear("http://e")
    assert refusals.left_out("http://e", 1.0) == 0


def test_refusals_of_routes_that_are_gone_are_forgotten() -> None:
    refusals = Refusals()
    refusals.note("http://old", 1.0)
    refusals.note("http://new", 1.0)
    refusals.keep({"http://new"})
    assert refusals.left_out("http://old", 1.0) == 0
    assert refusals.left_out("http://new", 1.0) > 0
