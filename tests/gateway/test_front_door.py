"""Everything that isn't `/v1` reaches the api process and comes back as it was."""

from __future__ import annotations

import asyncio
import io

import aiohttp
import pytest
from aiohttp import web

from tests.gateway.world import World, until

pytestmark = pytest.mark.system


class Api:
    """A small api process: it echoes, streams events, and may be unready."""

    def __init__(self) -> None:
        self.ready = True
        self.events = asyncio.Semaphore(0)
        self.open_streams = 0
        self.app = web.Application(client_max_size=64 * 2**20)
        self.app.router.add_get("/readyz", self._readyz)
        self.app.router.add_get("/api/v1/stream", self._stream)
        self.app.router.add_route("*", "/{path:.*}", self._echo)

    async def _readyz(self, _: web.Request) -> web.Response:
        return web.Response(status=200 if self.ready else 503)

    async def _echo(self, request: web.Request) -> web.Response:
        body = await request.read()
        said = {
            "method": request.method,
            "target": request.raw_path,
            "headers": [[k.lower(), v] for k, v in request.headers.items()],
            "length": len(body),
        }
        answer = web.json_response(said, status=int(request.query.get("status", "200")))
        answer.headers.add("Set-Cookie", "a=1")
        answer.headers.add("Set-Cookie", "b=2")
        return answer

    async def _stream(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        self.open_streams += 1
        try:
            while True:
                await self.events.acquire()
                await response.write(b"data: {}\n\n")
        finally:
            self.open_streams -= 1


def test_a_request_passes_as_it_was_with_what_we_know_of_its_client(gateway: World) -> None:
    async def story() -> None:
        async with gateway.visit() as (w, caller):
            await w.api(Api().app)
            sent = {
                "Host": "models.example",
                "X-Forwarded-For": "1.2.3.4",
                "Forwarded": "for=1.2.3.4",
                "Connection": "X-Hop",
                "X-Hop": "only for the next",
                "Cookie": "session=1",
                "Idempotency-Key": "k1",
            }
            url = w.url + "/api/v1/deployments?name=a%20b&limit=5"
            async with caller.session.post(url, data=b"{}", headers=sent) as answer:
                said = await answer.json()
                assert answer.headers.getall("Set-Cookie") == ["a=1", "b=2"]
            assert (said["method"], said["length"]) == ("POST", 2)
            assert said["target"] == "/api/v1/deployments?name=a%20b&limit=5"
            headers = dict(said["headers"])
            assert headers["host"] == headers["x-forwarded-host"] == "models.example"
            assert headers["x-forwarded-for"] == "127.0.0.1"
            assert headers["x-forwarded-proto"] == "http"
            assert (headers["cookie"], headers["idempotency-key"]) == ("session=1", "k1")
            assert not {"x-hop", "forwarded"} & headers.keys()

    asyncio.run(story())


def test_every_method_and_status_passes(gateway: World) -> None:
    async def story() -> None:
        async with gateway.visit() as (w, caller):
            await w.api(Api().app)
            for method in ("GET", "PUT", "PATCH", "DELETE", "OPTIONS"):
                for status in (200, 204, 404, 412, 422):
                    url = f"{w.url}/api/v1/anything?status={status}"
                    async with caller.session.request(method, url) as answer:
                        body = await answer.read()
                        assert answer.status == status
                    assert (b'"method"' in body) == (status != 204)
            async with caller.session.head(f"{w.url}/docs") as answer:
                assert (answer.status, await answer.read()) == (200, b"")

    asyncio.run(story())


def test_a_large_upload_streams_through(gateway: World) -> None:
    async def story() -> None:
        async with gateway.visit() as (w, caller):
            await w.api(Api().app)
            data = io.BytesIO(b"x" * 5_000_000)
            async with caller.session.put(w.url + "/files", data=data) as answer:
                assert (await answer.json())["length"] == 5_000_000

    asyncio.run(story())


def test_events_pass_as_they_come_and_a_client_that_leaves_ends_the_stream(
    gateway: World,
) -> None:
    async def story() -> None:
        async with gateway.visit() as (w, caller):
            api = Api()
            await w.api(api.app)
            async with caller.session.get(w.url + "/api/v1/stream") as stream:
                for _ in range(3):
                    api.events.release()
                    assert await stream.content.readuntil(b"\n\n") == b"data: {}\n\n"
                assert api.open_streams == 1
                stream.close()
            await until(lambda: api.open_streams == 0, "the api's stream ends too")

    asyncio.run(story())


def test_an_api_that_is_away_is_a_problem_with_a_hint(gateway: World) -> None:
    async def story() -> None:
        async with gateway.visit() as (_, caller):
            async with caller.get("/api/v1/deployments") as answer:
                problem = await answer.json(content_type="application/problem+json")
                assert (answer.status, problem["code"]) == (503, "api_unreachable")
                assert problem["hint"]
            async with caller.get("/healthz") as answer:
                assert answer.status == 200

    asyncio.run(story())


def test_the_front_door_is_ready_when_the_api_is_too(gateway: World) -> None:
    async def story() -> None:
        async with gateway.visit() as (w, caller):
            ready = w.url + "/readyz"

            async def told(session: aiohttp.ClientSession) -> tuple[int, bool]:
                async with session.get(ready) as answer:
                    return answer.status, (await answer.json())["api"]

            assert await told(caller.session) == (503, False)
            api = Api()
            await w.api(api.app)
            assert await told(caller.session) == (200, True)
            api.ready = False
            assert await told(caller.session) == (503, False)

    asyncio.run(story())
