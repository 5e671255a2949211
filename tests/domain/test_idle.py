"""The idle clock: when it runs, what stops it, and what it never concludes."""

from datetime import UTC, datetime, timedelta

import pytest

from controlplane.domain.deployment import ScaleDown, ScaleDownPolicy
from controlplane.domain.idle import Activity, sleeps_at

T0 = datetime(2026, 12, 1, 12, 0, tzinfo=UTC)
HOUR = timedelta(hours=1)
IDLE = ScaleDown(ScaleDownPolicy.IDLE, HOUR)
TIMER = ScaleDown(ScaleDownPolicy.TIMER, HOUR)
NEVER = ScaleDown(ScaleDownPolicy.NEVER, None)
QUIET = Activity(known=True)


def _when(policy: ScaleDown, activity: Activity, **moments: datetime | None) -> datetime | None:
    facts: dict[str, datetime | None] = {
        "first_ready_at": T0, "up_since": T0 - timedelta(minutes=5), "last_active_at": None,
    }  # fmt: skip
    facts |= moments
    return sleeps_at(
        policy,
        first_ready_at=facts["first_ready_at"],
        up_since=facts["up_since"],
        last_active_at=facts["last_active_at"],
        activity=activity,
    )


def test_the_idle_clock_starts_at_the_first_ready_and_not_at_the_start() -> None:
    assert _when(IDLE, QUIET) == T0 + HOUR
    assert _when(IDLE, QUIET, first_ready_at=None) is None
    assert _when(TIMER, QUIET, first_ready_at=None) is None


def test_activity_from_before_the_wake_does_not_shorten_it() -> None:
    assert _when(IDLE, QUIET, last_active_at=T0 - HOUR) == T0 + HOUR


def test_the_last_byte_of_the_last_request_counts() -> None:
    late = T0 + timedelta(minutes=40)
    activity = Activity(known=True, last_byte_at=late)
    assert _when(IDLE, activity) == late + HOUR
    assert _when(IDLE, QUIET, last_active_at=late) == late + HOUR


def test_a_stream_longer_than_the_window_keeps_its_model_awake() -> None:
    streaming = Activity(known=True, in_flight=1, last_byte_at=T0)
    assert _when(IDLE, streaming) is None


def test_no_information_never_means_idle() -> None:
    assert _when(IDLE, Activity(known=False)) is None


@pytest.mark.parametrize("activity", [QUIET, Activity(known=True, in_flight=3), Activity()])
def test_the_timer_counts_from_the_start_whatever_the_traffic(activity: Activity) -> None:
    assert _when(TIMER, activity) == T0 - timedelta(minutes=5) + HOUR


def test_never_means_never() -> None:
    assert _when(NEVER, QUIET) is None
