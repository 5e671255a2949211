"""Where requests go, how streams end, and what is never sent twice."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import aiohttp
import pytest

from tests.gateway.world import PATIENCE, World, free_port, until, world

pytestmark = pytest.mark.system


def test_a_draining_replica_gets_nothing_new_and_finishes_its_long_stream(gateway: World) -> None:
    async def story() -> None:
        async with gateway.visit() as (w, caller):
            deployment = await w.deploy("hello", phase="ready")
            old, new = await w.engine("hello"), await w.engine("hello")
            old.chunk_gate = asyncio.Semaphore(1)
            await w.shown(w.route(deployment, old.url))
            async with caller.ask("hello", stream=True) as stream:
                assert await stream.content.readuntil(b"\n\n") == b'data: {"n": 0}\n\n'
                w.route(deployment, new.url, slot=1)
                await w.shown(w.route(deployment, old.url, state="draining"))
                assert w.said(deployment).get("replicas") == {"0-abc": 1}
                for _ in range(5):
                    assert (await caller.answer("hello"))[0] == 200
                assert (len(old.requests), len(new.requests)) == (1, 5)
                old.chunk_gate.release()
                old.chunk_gate.release()
                rest = await stream.content.read()
            assert rest == b'data: {"n": 1}\n\ndata: {"n": 2}\n\ndata: [DONE]\n\n'
            await until(lambda: w.said(deployment).get("replicas") == {}, "nothing in flight there")

    asyncio.run(story())


def test_a_refused_connection_holds_and_serves_when_the_new_route_comes(gateway: World) -> None:
    async def story() -> None:
        async with gateway.visit() as (w, caller):
            deployment = await w.deploy("hello", phase="ready")
            await w.shown(w.route(deployment, f"http://127.0.0.1:{free_port()}"))
            asking = asyncio.create_task(caller.answer("hello"))
            await until(lambda: w.said(deployment).get("held") == 1, "held, not refused")
            engine = await w.engine("hello")
            w.route(deployment, engine.url)
            assert (await asking)[0] == 200

    asyncio.run(story())


def test_a_replica_that_comes_back_at_its_address_is_tried_again(gateway: World) -> None:
    async def story() -> None:
        async with gateway.visit() as (w, caller):
            deployment = await w.deploy("hello", phase="ready")
            engine = await w.engine("hello")
            await w.shown(w.route(deployment, engine.url))
            assert (await caller.answer("hello"))[0] == 200
            await engine.stop()
            asking = asyncio.create_task(caller.answer("hello"))
            await until(lambda: w.said(deployment).get("held") == 1, "held")
            await engine.start()
            assert (await asking)[0] == 200

    asyncio.run(story())


def test_an_engine_of_another_deployment_at_a_reused_port_gets_no_request(gateway: World) -> None:
    async def story() -> None:
        async with gateway.visit() as (w, caller):
            deployment = await w.deploy("hello", phase="ready")
            other, right = await w.engine("other"), await w.engine("hello")
            await w.shown(w.route(deployment, other.url))
            asking = asyncio.create_task(caller.answer("hello"))
            await until(lambda: w.said(deployment).get("held") == 1, "held")
            w.route(deployment, right.url)
            assert (await asking)[0] == 200
            assert other.requests == []

    asyncio.run(story())


def test_two_replicas_share_the_requests(gateway: World) -> None:
    async def story() -> None:
        async with gateway.visit() as (w, caller):
            deployment = await w.deploy("hello", phase="ready")
            one, two = await w.engine("hello"), await w.engine("hello")
            for engine in (one, two):
                engine.gate.clear()
            w.route(deployment, one.url)
            await w.shown(w.route(deployment, two.url, slot=1))
            asking = [asyncio.create_task(caller.answer("hello")) for _ in range(10)]
            await until(lambda: one.open + two.open == 10, "all are sent")
            assert (one.open, two.open) == (5, 5)
            for engine in (one, two):
                engine.gate.set()
            assert {status for status, _ in await asyncio.gather(*asking)} == {200}

    asyncio.run(story())


def test_chunks_pass_as_they_come(gateway: World) -> None:
    async def story() -> None:
        async with gateway.visit() as (w, caller):
            deployment = await w.deploy("hello", phase="ready")
            engine = await w.engine("hello")
            engine.chunk_gate = asyncio.Semaphore(0)
            await w.shown(w.route(deployment, engine.url))
            async with caller.ask("hello", stream=True) as stream:
                assert stream.headers["X-Accel-Buffering"] == "no"
                assert stream.headers["Cache-Control"] == "no-cache"
                for n in range(3):
                    engine.chunk_gate.release()
                    chunk = await stream.content.readuntil(b"\n\n")
                    assert chunk == f'data: {{"n": {n}}}\n\n'.encode()

    asyncio.run(story())


def test_a_client_that_leaves_ends_the_engines_work(gateway: World) -> None:
    async def story() -> None:
        async with gateway.visit() as (w, caller):
            deployment = await w.deploy("hello", phase="ready")
            engine = await w.engine("hello")
            engine.chunk_gate = asyncio.Semaphore(1)
            await w.shown(w.route(deployment, engine.url))
            async with caller.ask("hello", stream=True) as stream:
                await stream.content.readuntil(b"\n\n")
                stream.close()
            await until(lambda: engine.open == 0, "the stream is aborted at the engine")
            engine.gate.clear()
            plain = asyncio.create_task(caller.answer("hello"))
            await until(lambda: engine.open == 1, "the plain one is sent")
            plain.cancel()
            await until(lambda: engine.open == 0, "the plain one is aborted too")
            await until(lambda: w.said(deployment).get("in_flight") == 0, "counts are back")

    asyncio.run(story())


def test_an_engine_that_dies_in_a_stream_ends_it_with_an_error_and_is_not_asked_again(
    gateway: World,
) -> None:
    async def story() -> None:
        async with gateway.visit() as (w, caller):
            deployment = await w.deploy("hello", phase="ready")
            engine = await w.engine("hello")
            engine.end_early = True
            await w.shown(w.route(deployment, engine.url))
            async with caller.ask("hello", stream=True, secret="tell nobody") as stream:
                text = (await stream.content.read()).decode()
            events = [line[6:] for line in text.splitlines() if line.startswith("data: ")]
            assert events[:3] == ['{"n": 0}', '{"n": 1}', '{"n": 2}']
            assert '"code": "engine_died"' in events[3]
            assert events[4:] == ["[DONE]"]
            assert len(engine.requests) == 1
            log = w.log.read_text()
            assert "answer_broken" in log
            assert "tell nobody" not in log
            assert w.key.text not in log

    asyncio.run(story())


def test_a_request_that_an_engine_took_is_never_sent_again(gateway: World) -> None:
    async def story() -> None:
        async with gateway.visit() as (w, caller):
            deployment = await w.deploy("hello", phase="ready")
            engine, other = await w.engine("hello"), await w.engine("hello")
            engine.gate.clear()
            await w.shown(w.route(deployment, engine.url))
            asking = asyncio.create_task(caller.answer("hello"))
            await until(lambda: engine.open == 1, "the engine works on it")
            await w.shown(w.route(deployment, other.url, slot=1))
            transport = engine.requests[0].transport
            assert transport is not None
            transport.abort()
            status, body = await asking
            assert (status, body["error"]["code"]) == (503, "engine_lost")
            assert other.requests == []
            await until(lambda: w.said(deployment).get("in_flight") == 0, "counts are back")

    asyncio.run(story())


def test_an_engine_that_says_nothing_for_too_long_is_an_error(
    tmp_path: Path, database_url: str
) -> None:
    limits = {"SLIPSTREAM_FIRST_BYTE_SECONDS": "0.5", "SLIPSTREAM_CHUNK_SECONDS": "0.5"}

    async def story() -> None:
        async with world(tmp_path, database_url, **limits) as (w, caller):
            deployment = await w.deploy("hello", phase="ready")
            engine = await w.engine("hello")
            engine.gate.clear()
            await w.shown(w.route(deployment, engine.url))
            status, body = await caller.answer("hello")
            assert (status, body["error"]["code"]) == (502, "engine_silent")
            engine.gate.set()
            engine.chunk_gate = asyncio.Semaphore(1)
            async with caller.ask("hello", stream=True) as stream:
                text = (await stream.content.read()).decode()
            assert '"code": "engine_silent"' in text
            assert text.endswith("data: [DONE]\n\n")
            await until(lambda: engine.open == 0, "both were aborted at the engine")

    asyncio.run(story())


def test_after_a_storm_with_clients_leaving_at_any_time_every_count_is_back_at_zero(
    gateway: World,
) -> None:
    async def story() -> None:
        async with gateway.visit() as (w, caller):
            deployment = await w.deploy("hello")
            engine = await w.engine("hello")
            chance = random.Random(7)

            async def one(n: int) -> None:
                try:
                    async with asyncio.timeout(chance.random() if n % 3 else PATIENCE):
                        async with caller.ask("hello", stream=bool(n % 2)) as answer:
                            await answer.read()
                except (TimeoutError, aiohttp.ClientError):
                    return

            asking = [asyncio.create_task(one(n)) for n in range(200)]
            await until(lambda: w.said(deployment).get("held", 0) > 0, "some are held")
            w.route(deployment, engine.url)
            await asyncio.gather(*asking)
            await until(
                lambda: (s := w.said(deployment)).get("in_flight") == s.get("held") == 0,
                "counts are back at zero",
            )
            assert w.said(deployment).get("replicas") == {}
            await until(lambda: engine.open == 0, "nothing is left at the engine")
            async with caller.get("/metrics") as metrics:
                text = await metrics.text()
            assert 'slipstream_gateway_in_flight{deployment="hello"} 0.0' in text
            assert 'slipstream_gateway_waiting{deployment="hello"} 0.0' in text

    asyncio.run(story())
