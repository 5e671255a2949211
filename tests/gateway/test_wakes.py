from __future__ import annotations

from controlplane.domain.phases import Phase
from controlplane.gateway.wakes import LIFETIME, RENEW_AFTER, Wakes


def _store(wakes: Wakes) -> list[str]:
    due = wakes.due()
    for wanted in due:
        wanted.stored = True
    return [w.deployment_id for w in due]


def test_a_herd_makes_one_wake() -> None:
    wakes = Wakes()
    assert [wakes.want("d", Phase.ASLEEP, 0.0) for _ in range(50)] == [True] + [False] * 49
    assert _store(wakes) == ["d"]
    assert not wakes.want("d", Phase.ASLEEP, 1.0)
    assert _store(wakes) == []


def test_a_wake_stays_due_until_it_is_stored() -> None:
    wakes = Wakes()
    wakes.want("d", Phase.ASLEEP, 0.0)
    assert [w.deployment_id for w in wakes.due()] == ["d"]
    wakes.expire(RENEW_AFTER + 1, {"d"})
    assert _store(wakes) == ["d"]


def test_a_wake_is_renewed_well_before_it_ends_while_somebody_waits() -> None:
    wakes = Wakes()
    assert RENEW_AFTER * 2 < LIFETIME
    wakes.want("d", Phase.WAKING, 0.0)
    _store(wakes)
    assert not wakes.want("d", Phase.WAKING, RENEW_AFTER - 1)
    assert wakes.want("d", Phase.WAKING, RENEW_AFTER)
    assert _store(wakes) == ["d"]


def test_a_deployment_that_fell_asleep_after_its_wake_is_woken_again() -> None:
    wakes = Wakes()
    wakes.want("d", Phase.DRAINING, 0.0)
    _store(wakes)
    assert wakes.want("d", Phase.ASLEEP, 0.5)
    assert not wakes.want("d", Phase.ASLEEP, 0.6)


def test_when_nobody_waits_any_more_the_next_request_is_another_herd() -> None:
    wakes = Wakes()
    wakes.want("d", Phase.ASLEEP, 0.0)
    _store(wakes)
    wakes.over("d")
    assert wakes.want("d", Phase.ASLEEP, 0.1)


def test_a_rejected_request_has_its_wake_stored_though_nobody_waits() -> None:
    wakes = Wakes()
    wakes.want("d", Phase.ASLEEP, 0.0, held=False, lifetime=300.0)
    wakes.over("d")
    wakes.expire(200.0, ())
    (due,) = wakes.due()
    assert due.lifetime == 300.0
    _store(wakes)
    assert not wakes.want("d", Phase.ASLEEP, 0.1, held=False)
    wakes.expire(RENEW_AFTER, ())
    assert wakes.want("d", Phase.ASLEEP, RENEW_AFTER, held=False)


def test_a_wake_that_could_not_be_stored_in_its_time_is_given_up() -> None:
    wakes = Wakes()
    wakes.want("d", Phase.ASLEEP, 0.0, held=False)
    wakes.expire(LIFETIME, ())
    assert wakes.due() == []
