"""What a wait decides, and what it shows."""

from __future__ import annotations

from typing import Any

import pytest

from controlplane.cli import waiting
from controlplane.cli.waiting import Wait, WaitEnded
from tests.cli.conftest import Answer, Cli, Server, deployment, problem

GONE = Answer(404, problem(404, "not_found", "There is no such deployment."))
AWAY = Answer(503, problem(503, "database_unavailable", "The database does not answer."))


def starting(reason: str = "LoadingWeights", **more: Any) -> dict[str, Any]:
    return deployment("starting", "yellow", status={"reason": reason, **more})


def failed(**more: Any) -> dict[str, Any]:
    told = {"reason": "GatedModel", "message": "The hub wants a licence.", "hint": "Accept it."}
    return deployment("failed", "red", status=told, **more)


def test_a_wait_shows_the_steps_and_ends_with_0_when_it_is_ready(
    cli: Cli, scripted: Server
) -> None:
    queued = deployment("queued", "yellow", observed_generation=0)
    seen = [queued, starting("DownloadingWeights"), starting(), deployment()]
    scripted.says("GET", "/deployments/hello", seen[0])
    scripted.says("GET", f"/deployments/{queued['id']}", *seen[1:])
    ended = cli("wait", "hello")
    assert ended.code == 0
    steps = [line.split(" ...")[0].strip() for line in ended.err.splitlines()]
    assert steps == ["queued", "downloading weights", "loading weights", "ready"]
    assert "● ready" in ended.out


def test_a_failure_ends_the_wait_with_6_its_reason_and_its_hint(cli: Cli, scripted: Server) -> None:
    scripted.says("GET", "/deployments/hello", starting())
    scripted.says("GET", f"/deployments/{failed()['id']}", failed())
    ended = cli("wait", "hello")
    assert ended.code == 6
    assert "hello is failed. The hub wants a licence.\n  Accept it.\n" in ended.err


def test_deploy_wait_ends_with_6_too(cli: Cli, scripted: Server) -> None:
    scripted.says("POST", "/deployments", Answer(201, deployment("queued", "yellow")))
    scripted.says("GET", "/deployments/hello", starting())
    scripted.says("GET", f"/deployments/{failed()['id']}", failed())
    assert cli("deploy", "hello", "--model", "o/n", "--wait").code == 6


def test_a_server_that_is_away_for_a_moment_ends_no_wait(cli: Cli, scripted: Server) -> None:
    scripted.says("GET", "/deployments/hello", starting())
    scripted.says("GET", f"/deployments/{starting()['id']}", AWAY, AWAY, deployment())
    ended = cli("wait", "hello")
    assert ended.code == 0
    assert ended.err.count("does not answer") == 1


def test_a_server_that_was_never_there_ends_the_wait_at_once(cli: Cli, scripted: Server) -> None:
    scripted.says("GET", "/deployments/hello", AWAY)
    assert cli("wait", "hello").code == 5


def test_what_was_never_there_is_not_found_and_what_went_meanwhile_ended_otherwise(
    cli: Cli, scripted: Server
) -> None:
    scripted.says("GET", "/deployments/hello", GONE)
    assert cli("wait", "hello").code == 3
    assert cli("wait", "hello", "--for", "deleted").code == 0
    scripted.says("GET", "/deployments/hello", starting())
    scripted.says("GET", f"/deployments/{starting()['id']}", GONE)
    assert cli("wait", "hello").code == 6


def test_a_limit_ends_the_wait_with_6(cli: Cli, scripted: Server) -> None:
    scripted.says("GET", "/deployments/hello", starting())
    scripted.says("GET", f"/deployments/{starting()['id']}", starting())
    ended = cli("wait", "hello", "--timeout", "1s")
    assert ended.code == 6
    assert "not ready after 1s" in ended.err


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_only_a_standstill_of_ten_minutes_ends_a_wait_by_itself(clock: Clock) -> None:
    wait = Wait(clock=clock)
    for step in range(100):  # for eight hours something moves every five minutes
        assert not wait.done(starting(progress={"step": "download", "fraction": step / 100}))
        clock.now += 300
    clock.now += 299
    assert not wait.done(starting(progress={"step": "download", "fraction": 0.99}))
    clock.now += 2
    with pytest.raises(WaitEnded, match="Nothing moved for 10m"):
        wait.done(starting(progress={"step": "download", "fraction": 0.99}))


def test_ready_of_an_older_spec_is_not_what_was_waited_for(clock: Clock) -> None:
    wait = Wait(clock=clock)
    assert not wait.done(deployment(generation=2))
    assert wait.done(deployment(generation=2, observed_generation=2))


def test_failed_of_an_older_spec_ends_no_wait(clock: Clock) -> None:
    wait = Wait(clock=clock)
    clock.now += 60
    assert not wait.done(failed(generation=2))


@pytest.mark.parametrize("phase", ["failed", "asleep", "paused"])
def test_what_was_just_told_to_start_gets_a_moment_before_it_counts_as_at_rest(
    clock: Clock, phase: str
) -> None:
    wait = Wait(clock=clock)
    assert not wait.done(deployment(phase))
    clock.now += waiting.GRACE + 1
    with pytest.raises(WaitEnded):
        wait.done(deployment(phase))


def test_a_pause_that_stands_ends_the_wait_at_once_and_says_how_to_go_on(clock: Clock) -> None:
    with pytest.raises(WaitEnded) as told:
        Wait(clock=clock).done(deployment("paused", desired="paused"))
    assert "slipstream resume hello" in told.value.hint


def test_waiting_for_failed_is_content_with_failed(clock: Clock) -> None:
    assert Wait("failed", clock=clock).done(failed())


def test_what_is_being_deleted_is_waited_for_only_by_who_waits_for_that(clock: Clock) -> None:
    gone = Wait("deleted", clock=clock)
    assert not gone.done(deployment("stopping"))
    clock.now += 60
    assert not gone.done(deployment("stopping"))
    wait = Wait(clock=clock)
    wait.done(starting())
    with pytest.raises(WaitEnded):
        wait.done(deployment("stopping"))
