"""The transition table: what is reachable, what is legal, what is refused."""

from collections.abc import Iterable

import pytest

from controlplane.domain.phases import LIGHTS, NEXT, IllegalStep, Light, Phase, advance


def _reachable(start: Phase) -> set[Phase]:
    seen, todo = {start}, [start]
    while todo:
        for after in NEXT[todo.pop()] - seen:
            seen.add(after)
            todo.append(after)
    return seen


def _pairs(*, legal: bool) -> Iterable[tuple[Phase, Phase]]:
    return [(a, b) for a in Phase for b in Phase if a is not b and (b in NEXT[a]) is legal]


def test_every_phase_is_reached_from_queued() -> None:
    assert _reachable(Phase.QUEUED) == set(Phase)


@pytest.mark.parametrize("phase", Phase)
def test_every_phase_can_reach_deleted(phase: Phase) -> None:
    assert Phase.DELETED in _reachable(phase)


@pytest.mark.parametrize("phase", set(Phase) - {Phase.DELETED, Phase.STOPPING})
def test_every_phase_can_begin_to_stop(phase: Phase) -> None:
    assert Phase.STOPPING in NEXT[phase]


@pytest.mark.parametrize(("current", "to"), _pairs(legal=True))
def test_a_step_of_the_table_is_taken(current: Phase, to: Phase) -> None:
    assert advance(current, to) is to


@pytest.mark.parametrize(("current", "to"), _pairs(legal=False))
def test_a_step_that_the_table_lacks_is_refused(current: Phase, to: Phase) -> None:
    with pytest.raises(IllegalStep, match=f"{current} may not go to {to}"):
        advance(current, to)


@pytest.mark.parametrize("phase", Phase)
def test_staying_is_always_legal(phase: Phase) -> None:
    assert advance(phase, phase) is phase


def test_only_a_person_or_a_request_leads_out_of_rest() -> None:
    assert NEXT[Phase.PAUSED] == {Phase.QUEUED, Phase.STOPPING}
    assert Phase.READY not in NEXT[Phase.ASLEEP]
    assert NEXT[Phase.DELETED] == frozenset()


def test_green_is_ready_alone() -> None:
    assert [p for p in Phase if LIGHTS[p] is Light.GREEN] == [Phase.READY]
    assert LIGHTS[Phase.FAILED] is Light.RED
    assert {LIGHTS[Phase.ASLEEP], LIGHTS[Phase.PAUSED]} == {Light.GREY}
