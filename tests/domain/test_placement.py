"""Who gets a device, who waits behind whom, and who makes room."""

from datetime import UTC, datetime, timedelta

import pytest

from controlplane.domain.deployment import DeploymentId, ScaleDownPolicy
from controlplane.domain.placement import (
    Holder,
    Placed,
    Waiter,
    Waits,
    make_room,
    next_to_go,
    place,
)
from controlplane.domain.tiers import GIB, Device, DeviceKind, Tier

T0 = datetime(2026, 12, 1, 12, 0, tzinfo=UTC)
ONE = Tier("one", DeviceKind.CUDA, gpu="H200", count=1)
TWO = Tier("two", DeviceKind.CUDA, gpu="H200", count=2)
CPU = Tier("cpu", DeviceKind.CPU)
GPUS = [Device(str(n), DeviceKind.CUDA, "NVIDIA H200", 140 * GIB) for n in range(2)]


def _waiter(name: str, minute: int, tier: Tier = ONE, *, waking: bool = False) -> Waiter:
    return Waiter(DeploymentId(name), name, tier, T0 + timedelta(minutes=minute), waking)


def test_a_free_device_is_taken_and_a_taken_one_is_not() -> None:
    me = _waiter("me", 0)
    assert place(ONE, me, GPUS, {}, [me]) == Placed(("0",))
    assert place(ONE, me, GPUS, {"0": "other"}, [me]) == Placed(("1",))
    assert place(TWO, me, GPUS, {}, [me]) == Placed(("0", "1"))


def test_who_finds_none_learns_what_holds_them() -> None:
    me = _waiter("me", 0)
    assert place(TWO, me, GPUS, {"1": "qwen"}, [me]) == Waits(1, ("qwen",), ())


def test_nobody_overtakes_an_earlier_waiter() -> None:
    first, me = _waiter("first", 0, TWO), _waiter("me", 1)
    taken = {"0": "qwen"}
    assert place(ONE, me, GPUS, taken, [me, first]) == Waits(0, ("qwen",), ("first",))


def test_a_waiter_for_another_kind_of_device_stands_in_nobodys_way() -> None:
    other, me = _waiter("other", 0, CPU), _waiter("me", 1)
    assert place(ONE, me, GPUS, {}, [other, me]) == Placed(("0",))


def test_a_wake_goes_before_first_starts() -> None:
    me = _waiter("me", 9, waking=True)
    earlier = _waiter("earlier", 0)
    assert place(ONE, me, GPUS[:1], {}, [earlier, me]) == Placed(("0",))


def _holder(
    name: str, device: str, idle_minutes: int, policy: ScaleDownPolicy = ScaleDownPolicy.IDLE,
    *, settled: bool = True, up: int = 600,
) -> Holder:  # fmt: skip
    return Holder(
        DeploymentId(name), name, (device,), policy, settled,
        ready_since=T0 - timedelta(minutes=up), last_active_at=T0 - timedelta(minutes=idle_minutes),
    )  # fmt: skip


def _room(tier: Tier, *holders: Holder) -> list[str]:
    taken = [d for h in holders for d in h.devices]
    minimum = timedelta(minutes=1)
    chosen = make_room(tier, GPUS, taken, holders, now=T0, minimum_uptime=minimum)
    return [h.name for h in chosen]


def test_the_longest_idle_one_makes_room() -> None:
    assert _room(ONE, _holder("busy", "0", 1), _holder("idle", "1", 50)) == ["idle"]


def test_as_many_go_as_are_needed_and_no_more() -> None:
    assert _room(TWO, _holder("a", "0", 1), _holder("b", "1", 50)) == ["b", "a"]
    assert _room(TWO, _holder("b", "1", 50)) == ["b"]


@pytest.mark.parametrize(
    "holder",
    [
        _holder("never", "0", 50, ScaleDownPolicy.NEVER),
        _holder("working", "0", 50, settled=False),
        _holder("just-up", "0", 50, up=0),
    ],
)
def test_who_may_not_go_stays(holder: Holder) -> None:
    assert _room(TWO, holder, _holder("free", "1", 60)) == []


def test_nobody_goes_where_room_is_free() -> None:
    assert _room(ONE, _holder("a", "0", 50)) == []


def test_who_may_go_next_is_named_with_the_time_that_stands_in_the_way() -> None:
    minimum = timedelta(minutes=10)
    young = [_holder("a", "0", 1, up=4), _holder("b", "1", 1, up=7)]
    assert next_to_go(young, now=T0, minimum_uptime=minimum) == ("b", timedelta(minutes=3))


@pytest.mark.parametrize(
    "holder",
    [
        _holder("never", "0", 1, ScaleDownPolicy.NEVER, up=1),
        _holder("working", "0", 1, settled=False, up=1),
        _holder("old-enough", "0", 1, up=60),
    ],
)
def test_where_time_is_not_what_stands_in_the_way_nobody_is_named(holder: Holder) -> None:
    assert next_to_go([holder], now=T0, minimum_uptime=timedelta(minutes=10)) is None
