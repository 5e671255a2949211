"""Held requests, end to end: a real gateway process, a real database, engines of ours."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.gateway.world import World, until, world

pytestmark = pytest.mark.system


def test_a_request_to_a_sleeper_is_held_and_answered_by_the_woken_engine(gateway: World) -> None:
    async def story() -> None:
        async with gateway.visit() as (w, caller):
            deployment = await w.deploy("hello")
            engine = await w.engine("hello")
            asking = asyncio.create_task(caller.answer("hello"))
            await until(lambda: w.wakes(deployment) == 1, "the wake is stored")
            await until(lambda: w.said(deployment).get("held") == 1, "held is activity")
            w.phase(deployment, "waking")
            assert not asking.done()
            w.route(deployment, engine.url)
            assert await asking == (200, {"model": "hello", "object": "chat.completion"})
            assert w.wakes(deployment) == 1
            due = "SELECT count(*) FROM timers WHERE deployment_id = %s AND due_at <= now()"
            assert w.sql(due, deployment) == [(1,)]

    asyncio.run(story())


def test_a_herd_of_fifty_makes_one_wake_and_all_of_it_is_answered(gateway: World) -> None:
    async def story() -> None:
        async with gateway.visit() as (w, caller):
            deployment = await w.deploy("hello")
            engine = await w.engine("hello")
            asking = [asyncio.create_task(caller.answer("hello", n=n)) for n in range(50)]
            await until(lambda: w.said(deployment).get("held") == 50, "all are held")
            w.route(deployment, engine.url)
            answers = await asyncio.gather(*asking)
            assert {status for status, _ in answers} == {200}
            assert len(engine.requests) == 50
            assert w.wakes(deployment) == 1
            await until(
                lambda: (s := w.said(deployment)).get("in_flight") == s.get("held") == 0,
                "counts are back",
            )

    asyncio.run(story())


def test_a_model_that_fell_asleep_again_is_woken_again(gateway: World) -> None:
    async def story() -> None:
        async with gateway.visit() as (w, caller):
            deployment = await w.deploy("hello")
            engine = await w.engine("hello")
            for cycle in range(1, 4):
                asking = asyncio.create_task(caller.answer("hello"))
                await until(lambda c=cycle: w.wakes(deployment) == c, "a wake of its own")
                w.route(deployment, engine.url)
                assert (await asking)[0] == 200
                await w.shown(w.route(deployment, engine.url, state="draining"))

    asyncio.run(story())


def test_past_the_deadline_a_held_request_is_told_when_to_try_again(gateway: World) -> None:
    async def story() -> None:
        async with gateway.visit() as (w, caller):
            deployment = await w.deploy("hello", deadline="1s")
            w.sql(
                "UPDATE deployment_status SET message = 'No slot is free: behind other.',"
                ' detail = \'{"up_since": "2026-01-01T00:00:00+00:00",'
                ' "first_ready_at": "2026-01-01T00:01:15+00:00"}\''
                " WHERE deployment_id = %s",
                deployment,
            )
            await w.shown(w.epoch())
            async with caller.ask("hello") as answer:
                error = (await answer.json())["error"]
                assert answer.status == 503
                assert error["code"] == "wake_deadline_exceeded"
                assert "No slot is free: behind other." in error["message"]
                assert answer.headers["Retry-After"] == "75"
            await until(lambda: w.said(deployment).get("held") == 0, "the place is given back")

    asyncio.run(story())


def test_a_failed_wake_ends_every_held_request_with_its_reason(gateway: World) -> None:
    async def story() -> None:
        async with gateway.visit() as (w, caller):
            deployment = await w.deploy("hello")
            asking = [asyncio.create_task(caller.answer("hello")) for _ in range(5)]
            await until(lambda: w.said(deployment).get("held") == 5, "all are held")
            w.phase(deployment, "failed", "OutOfGpuMemory", "The GPU is too small.")
            for status, body in await asyncio.gather(*asking):
                assert status == 503
                assert body["error"]["code"] == "deployment_failed"
                assert "OutOfGpuMemory" in body["error"]["message"]
                assert "The GPU is too small." in body["error"]["message"]
            async with caller.ask("hello") as answer:
                assert answer.status == 503
                assert "Retry-After" not in answer.headers
                assert answer.headers["x-should-retry"] == "false"

    asyncio.run(story())


def test_a_client_that_leaves_gives_its_place_to_the_next(gateway: World) -> None:
    async def story() -> None:
        async with gateway.visit() as (w, caller):
            deployment = await w.deploy("hello", max_waiting=1)
            engine = await w.engine("hello")
            first = asyncio.create_task(caller.answer("hello"))
            await until(lambda: w.said(deployment).get("held") == 1, "the first is held")
            async with caller.ask("hello") as refused:
                assert refused.status == 429
                assert (await refused.json())["error"]["code"] == "too_many_waiting"
                assert int(refused.headers["Retry-After"]) >= 1
            first.cancel()
            await until(lambda: w.said(deployment).get("held") == 0, "its place is free")
            second = asyncio.create_task(caller.answer("hello"))
            await until(lambda: w.said(deployment).get("held") == 1, "the second is held")
            w.route(deployment, engine.url)
            assert (await second)[0] == 200
            assert len(engine.requests) == 1

    asyncio.run(story())


def test_held_bodies_are_bounded_in_bytes(tmp_path: Path, database_url: str) -> None:
    async def story() -> None:
        async with world(tmp_path, database_url, SLIPSTREAM_HELD_BYTES="2000") as (w, caller):
            await w.deploy("hello")
            status, body = await caller.answer("hello", padding="x" * 2000)
            assert (status, body["error"]["code"]) == (503, "waiting_room_full")

    asyncio.run(story())


def test_reject_answers_at_once_and_wakes_all_the_same(gateway: World) -> None:
    async def story() -> None:
        async with gateway.visit() as (w, caller):
            deployment = await w.deploy("hello", mode="reject")
            engine = await w.engine("hello")
            for _ in range(3):
                async with caller.ask("hello") as answer:
                    assert answer.status == 503
                    assert (await answer.json())["error"]["code"] == "deployment_waking"
                    assert int(answer.headers["Retry-After"]) >= 1
            await until(lambda: w.wakes(deployment) == 1, "one wake is stored")
            await w.shown(w.route(deployment, engine.url))
            assert (await caller.answer("hello"))[0] == 200
            assert w.wakes(deployment) == 1

    asyncio.run(story())


def test_paused_says_so_and_asks_for_no_wake(gateway: World) -> None:
    async def story() -> None:
        async with gateway.visit() as (w, caller):
            deployment = await w.deploy("hello", phase="paused")
            await w.shown(w.desire(deployment, "paused"))
            async with caller.ask("hello") as answer:
                assert answer.status == 503
                assert (await answer.json())["error"]["code"] == "deployment_paused"
                assert "Retry-After" not in answer.headers
            assert w.wakes(deployment) == 0

    asyncio.run(story())


def test_a_pause_ends_held_requests_and_a_resume_holds_the_next(gateway: World) -> None:
    async def story() -> None:
        async with gateway.visit() as (w, caller):
            deployment = await w.deploy("hello", phase="waking")
            engine = await w.engine("hello")
            held = asyncio.create_task(caller.answer("hello"))
            await until(lambda: w.said(deployment).get("held") == 1, "held")
            w.desire(deployment, "paused")
            status, body = await held
            assert (status, body["error"]["code"]) == (503, "deployment_paused")
            w.phase(deployment, "paused")
            await w.shown(w.desire(deployment, "running"))
            held = asyncio.create_task(caller.answer("hello"))
            await until(lambda: w.said(deployment).get("held") == 1, "held again")
            w.route(deployment, engine.url)
            assert (await held)[0] == 200

    asyncio.run(story())


def test_a_deleted_deployment_ends_its_held_requests_as_not_found(gateway: World) -> None:
    async def story() -> None:
        async with gateway.visit() as (w, caller):
            deployment = await w.deploy("hello")
            held = asyncio.create_task(caller.answer("hello"))
            await until(lambda: w.said(deployment).get("held") == 1, "held")
            w.desire(deployment, "deleted")
            status, body = await held
            assert (status, body["error"]["code"]) == (404, "model_not_found")

    asyncio.run(story())
