"""A gateway's own life: starting, losing the database, leaving."""

from __future__ import annotations

import asyncio
import signal
import socket
from pathlib import Path

import aiohttp
import pytest

from controlplane.embedded import postgres
from controlplane.persistence.migrate import migrate
from controlplane.settings import Settings, Stores
from tests.gateway.test_front_door import Api
from tests.gateway.world import World, until, world

pytestmark = pytest.mark.system


def test_a_restarted_database_cuts_nothing_and_a_wake_is_stored_once_it_is_back(
    tmp_path: Path, stores_dir: Path
) -> None:
    place = postgres.place_of(stores_dir / "restarted", stores_dir / "restarted-system")
    process = postgres.start(place, durable=False)
    try:
        url = place.url(postgres.NAME)
        migrate(Settings(tmp_path, stores=Stores(database_url=url)))

        async def story() -> None:
            nonlocal process
            async with world(tmp_path, url) as (w, caller):
                deployment = await w.deploy("hello", phase="ready")
                sleeper = await w.deploy("sleeper")
                engine, woken = await w.engine("hello"), await w.engine("sleeper")
                engine.chunk_gate = asyncio.Semaphore(1)
                await w.shown(w.route(deployment, engine.url))
                async with caller.ask("hello", stream=True) as stream:
                    await stream.content.readuntil(b"\n\n")
                    await asyncio.to_thread(postgres.end, process)
                    assert (await caller.answer("hello"))[0] == 200
                    held = asyncio.create_task(caller.answer("sleeper"))
                    assert (await caller.answer("nobody"))[0] == 404
                    process = await asyncio.to_thread(postgres.start, place, durable=False)
                    await until(lambda: w.wakes(sleeper) == 1, "the wake is stored")
                    engine.chunk_gate.release()
                    engine.chunk_gate.release()
                    assert (await stream.content.read()).endswith(b"data: [DONE]\n\n")
                await w.shown(w.route(sleeper, woken.url))
                assert (await held)[0] == 200

        asyncio.run(story())
    finally:
        postgres.end(process)


def test_a_gateway_that_restarts_while_everything_sleeps_holds_the_first_call(
    tmp_path: Path, database_url: str
) -> None:
    async def story() -> None:
        async with world(tmp_path, database_url) as (w, _):
            deployment = await w.deploy("hello")
        again = World(tmp_path, database_url)
        again.start()
        try:
            async with again.visit() as (second, caller):
                second.workspace = w.workspace
                key = second.add_key().text
                await second.shown(second.epoch())
                engine = await second.engine("hello")
                asking = asyncio.create_task(caller.answer("hello", key=key))
                await until(lambda: second.wakes(deployment) == 1, "the wake is stored")
                second.route(deployment, engine.url)
                assert (await asking)[0] == 200
        finally:
            again.end()

    asyncio.run(story())


def test_told_to_stop_it_lets_streams_finish_takes_nothing_new_and_removes_its_row(
    tmp_path: Path, database_url: str
) -> None:
    async def story() -> None:
        async with world(tmp_path, database_url) as (w, caller):
            api = Api()
            await w.api(api.app)
            deployment = await w.deploy("hello", phase="ready")
            engine = await w.engine("hello")
            engine.chunk_gate = asyncio.Semaphore(1)
            await w.shown(w.route(deployment, engine.url))
            async with caller.session.get(w.url + "/api/v1/stream") as events:
                async with caller.ask("hello", stream=True) as stream:
                    await stream.content.readuntil(b"\n\n")
                    assert w.process is not None
                    w.process.send_signal(signal.SIGTERM)
                    assert await events.content.read() == b""
                    await until(lambda: _refused(w), "nothing new is taken")
                    await until(
                        lambda: w.said(deployment).get("in_flight") == 1, "the stream is told of"
                    )
                    engine.chunk_gate.release()
                    engine.chunk_gate.release()
                    assert (await stream.content.read()).endswith(b"data: [DONE]\n\n")
            assert await w.ended() == 0
            assert w.heartbeat() is None

    asyncio.run(story())


def test_told_to_stop_it_answers_what_is_still_held_when_the_drain_limit_passes(
    tmp_path: Path, database_url: str
) -> None:
    async def story() -> None:
        async with world(tmp_path, database_url, SLIPSTREAM_DRAIN_SECONDS="3") as (w, caller):
            deployment = await w.deploy("hello")
            asking = asyncio.create_task(caller.answer("hello"))
            await until(lambda: w.said(deployment).get("held") == 1, "held")
            assert w.process is not None
            w.process.send_signal(signal.SIGTERM)
            status, body = await asking
            assert (status, body["error"]["code"]) == (503, "gateway_stopping")
            assert await w.ended() == 0

    asyncio.run(story())


def test_a_taken_port_is_one_sentence(tmp_path: Path, database_url: str) -> None:
    async def story() -> None:
        w = World(tmp_path, database_url)
        with socket.create_server(("127.0.0.1", w.port)):
            w.start()
            try:
                assert await w.ended() == 1
            finally:
                w.end()
        (line,) = w.log.read_text().splitlines()
        assert f"can't listen on 127.0.0.1 port {w.port}" in line

    asyncio.run(story())


def test_without_a_database_it_lives_says_it_is_not_ready_and_asks_to_try_again(
    tmp_path: Path,
) -> None:
    async def story() -> None:
        w = World(tmp_path, f"postgresql://nobody@/none?host={tmp_path}")
        w.start()
        try:
            async with aiohttp.ClientSession() as session:

                async def lives() -> bool:
                    try:
                        async with session.get(w.url + "/healthz") as answer:
                            return answer.status == 200
                    except aiohttp.ClientError:
                        return False

                await until(lives, "it lives")
                async with session.get(w.url + "/readyz") as answer:
                    assert answer.status == 503
                async with session.get(w.url + "/v1/models") as answer:
                    assert (answer.status, answer.headers["Retry-After"]) == (503, "1")
        finally:
            w.end()

    asyncio.run(story())


def _refused(w: World) -> bool:
    try:
        socket.create_connection(("127.0.0.1", w.port), 1).close()
    except ConnectionRefusedError:
        return True
    return False
