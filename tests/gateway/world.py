"""A real gateway process over a real database, with engines and an api of the test's own."""

from __future__ import annotations

import asyncio
import copy
import io
import json
import os
import secrets
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import psycopg
from aiohttp import web
from psycopg.types.json import Jsonb

from controlplane.auth.keys import Key, make_key

ROOT = Path(__file__).resolve().parents[2]
PATIENCE = 60.0


async def until(look: Callable[[], Any], what: str, patience: float = PATIENCE) -> Any:
    """The first truthy answer of `look` (which may be a coroutine function)."""
    deadline = time.monotonic() + patience
    while True:
        found = look()
        if isinstance(found, Awaitable):
            found = await found
        if found:
            return found
        assert time.monotonic() < deadline, f"never came: {what}"
        await asyncio.sleep(0.01)


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


class Engine:
    """An engine's surface, steered by the test: `gate` holds answers back, `chunk_gate` lets
    a stream's chunks through one release at a time."""

    def __init__(self, key: str) -> None:
        self.key = key
        self.requests: list[web.Request] = []
        self.bodies: list[bytes] = []
        self.open = 0
        self.aborted = 0
        self.gate = asyncio.Event()
        self.gate.set()
        self.chunks = 3
        self.chunk_gate = asyncio.Semaphore(1_000_000)
        self.end_early = False
        self.port = 0
        self._runner: web.AppRunner | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def start(self) -> None:
        app = web.Application(client_max_size=64 * 2**20)
        app.router.add_post("/{path:.*}", self._answer)
        self._runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self.port)
        await site.start()
        self.port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        if request.headers.get("Authorization") != f"Bearer {self.key}":
            return web.json_response({"error": {"message": "no"}}, status=401)
        body = await request.read()
        self.requests.append(request)
        self.bodies.append(body)
        self.open += 1
        try:
            return await self._work(request, json.loads(body))
        except (asyncio.CancelledError, ConnectionError):
            self.aborted += 1
            raise
        finally:
            self.open -= 1

    async def _work(self, request: web.Request, asked: dict[str, Any]) -> web.StreamResponse:
        await self.gate.wait()
        if not asked.get("stream"):
            return web.json_response({"model": asked["model"], "object": "chat.completion"})
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        for n in range(self.chunks):
            await self.chunk_gate.acquire()
            await response.write(f'data: {{"n": {n}}}\n\n'.encode())
        if self.end_early:
            assert request.transport is not None
            request.transport.abort()
            return response
        await response.write(b"data: [DONE]\n\n")
        return response


class World:
    def __init__(self, folder: Path, database_url: str, **environ: str) -> None:
        self.folder, self.database_url = folder, database_url
        self.port, self.api_port = free_port(), free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.environ = environ
        self.workspace = "default"
        self.key: Key = make_key()
        self.engines: list[Engine] = []
        self.process: subprocess.Popen[bytes] | None = None
        self.log = folder / "gateway.log"
        self._runners: list[web.AppRunner] = []
        self._connection: psycopg.Connection[Any] | None = None

    @property
    def bearer(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.key.text}"}

    # The database, as the API and the reconciler would write it.

    def sql(self, query: str, *values: Any) -> list[Any]:
        try:
            cursor = self._connected().execute(query.encode(), values)
        except psycopg.OperationalError:
            # The database was restarted since: once more, over a new connection.
            assert self._connection is not None
            self._connection.close()
            cursor = self._connected().execute(query.encode(), values)
        return cursor.fetchall() if cursor.description else []

    def _connected(self) -> psycopg.Connection[Any]:
        if self._connection is None or self._connection.closed:
            info = self.database_url.replace("postgresql+psycopg://", "postgresql://", 1)
            self._connection = psycopg.connect(info, autocommit=True, connect_timeout=5)
        return self._connection

    def epoch(self) -> int:
        """Raise the epoch, as whoever changes a route does."""
        return int(
            self.sql(
                "WITH e AS (UPDATE route_epoch SET epoch = epoch + 1 WHERE id = 1 RETURNING epoch)"
                " SELECT epoch, pg_notify('slipstream_routes', epoch::text) FROM e"
            )[0][0]
        )

    def add_key(self, role: str = "member") -> Key:
        key, workspace = make_key(), self.workspace
        self.sql("INSERT INTO workspaces (id) VALUES (%s) ON CONFLICT DO NOTHING", workspace)
        self.sql(
            "INSERT INTO api_keys (id, workspace, name, role, lookup, digest)"
            " VALUES (%s, %s, 'test', %s, %s, %s)",
            f"key_{key.lookup}", workspace, role, key.lookup, key.digest,
        )  # fmt: skip
        self.epoch()
        return key

    async def deploy(self, name: str, phase: str = "asleep", **wake: Any) -> str:
        """Declare a deployment and wait until the gateway knows it."""
        workspace = self.workspace
        deployment = f"dep_{workspace}_{name}"
        self.sql("INSERT INTO workspaces (id) VALUES (%s) ON CONFLICT DO NOTHING", workspace)
        self.sql(
            "INSERT INTO deployments (id, workspace, name, spec, generation, desired)"
            " VALUES (%s, %s, %s, %s, 1, 'running')",
            deployment, workspace, name, Jsonb({"name": name, "wake": wake}),
        )  # fmt: skip
        self.sql(
            "INSERT INTO deployment_status (deployment_id, phase, message, hint, detail,"
            " engine_key, observed_generation, handled_intent, version, lease_token)"
            " VALUES (%s, %s, '', '', '{}', %s, 1, 0, 1, 0)",
            deployment, phase, f"engine-key-{name}",
        )  # fmt: skip
        await self.shown(self.epoch())
        return deployment

    def phase(self, deployment: str, phase: str, reason: str | None = None, said: str = "") -> int:
        self.sql(
            "UPDATE deployment_status SET phase = %s, reason = %s, message = %s"
            " WHERE deployment_id = %s",
            phase, reason, said, deployment,
        )  # fmt: skip
        return self.epoch()

    def desire(self, deployment: str, desired: str) -> int:
        self.sql("UPDATE deployments SET desired = %s WHERE id = %s", desired, deployment)
        return self.epoch()

    def route(
        self, deployment: str, endpoint: str, *, slot: int = 0, state: str = "serving"
    ) -> int:
        self.sql(
            "INSERT INTO replicas (deployment_id, slot, render_hash, generation, devices, route,"
            " endpoint) VALUES (%s, %s, 'abc', 1, '[]', %s, %s)"
            " ON CONFLICT (deployment_id, slot, render_hash) DO UPDATE"
            " SET route = excluded.route, endpoint = excluded.endpoint",
            deployment, slot, state, endpoint,
        )  # fmt: skip
        return self.epoch()

    def wakes(self, deployment: str) -> int:
        """How many wakes were asked for, all of them still in force."""
        return int(
            self.sql(
                "SELECT count(*) FROM intents WHERE deployment_id = %s AND kind = 'wake'"
                " AND expires_at > now()",
                deployment,
            )[0][0]
        )

    def heartbeat(self) -> tuple[int, dict[str, Any]] | None:
        rows = self.sql("SELECT epoch, activity FROM gateways ORDER BY seen_at DESC")
        return (rows[0][0], rows[0][1]) if rows else None

    def said(self, deployment: str) -> dict[str, Any]:
        """What the newest heartbeat says of `deployment`."""
        beat = self.heartbeat()
        return dict(beat[1].get(deployment, {})) if beat else {}

    async def shown(self, epoch: int) -> None:
        """Wait until the gateway's heartbeat shows `epoch` or a later one."""
        await until(lambda: (b := self.heartbeat()) and b[0] >= epoch, f"epoch {epoch} shown")

    # Processes and servers.

    def start(self) -> None:
        kept = {k: v for k, v in os.environ.items() if not k.startswith("SLIPSTREAM_")}
        environ = {
            "SLIPSTREAM_DATABASE_URL": self.database_url,
            "SLIPSTREAM_DATA_DIR": str(self.folder),
            "SLIPSTREAM_PORT": str(self.port),
            "SLIPSTREAM_API_PORT": str(self.api_port),
            "SLIPSTREAM_HEARTBEAT_SECONDS": "0.1",
            **self.environ,
        }
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "controlplane.gateway"],
                env=kept | environ, cwd=ROOT, stdout=log, stderr=log,
            )  # fmt: skip

    def end(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    async def ended(self) -> int:
        """Wait for the gateway's process to end by itself; its exit status."""
        process = self.process
        assert process is not None
        await until(lambda: process.poll() is not None, "the gateway ends")
        return int(process.returncode)

    async def answers(self) -> bool:
        """True when the gateway listens and knows our key."""
        async with aiohttp.ClientSession() as session:
            try:
                async with session.get(f"{self.url}/v1/models", headers=self.bearer) as answer:
                    return answer.status == 200
            except aiohttp.ClientError:
                return False

    @asynccontextmanager
    async def visit(self) -> AsyncIterator[tuple[World, Caller]]:
        """A test's own view of this gateway: a workspace, a key and engines of its own."""
        mine = copy.copy(self)
        mine.workspace, mine.engines, mine._runners = f"w{secrets.token_hex(4)}", [], []
        mine._connection = None
        mine.key = mine.add_key()
        connector = aiohttp.TCPConnector(limit=0)
        try:
            await until(mine.answers, "the gateway answers")
            async with aiohttp.ClientSession(connector=connector) as session:
                yield mine, Caller(mine, session)
        except AssertionError as e:
            raise AssertionError(f"{e}\n{self.log.read_text(errors='replace')[-3000:]}") from e
        finally:
            await mine.close()

    async def engine(self, name: str) -> Engine:
        made = Engine(f"engine-key-{name}")
        await made.start()
        self.engines.append(made)
        return made

    async def api(self, app: web.Application) -> None:
        runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", self.api_port).start()
        self._runners.append(runner)

    async def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
        for engine in self.engines:
            await engine.stop()
        for runner in self._runners:
            await runner.cleanup()


class Caller:
    """A client with a key."""

    def __init__(self, world: World, session: aiohttp.ClientSession) -> None:
        self.world, self.session = world, session

    def ask(self, model: str, *, key: str | None = None, **more: Any) -> Any:
        return self.post("/v1/chat/completions", {"model": model, **more}, key=key)

    def post(self, path: str, body: Any, *, key: str | None = None) -> Any:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        headers = self.headers(key)
        return self.session.post(self.world.url + path, data=io.BytesIO(data), headers=headers)

    def get(self, path: str, *, key: str | None = None) -> Any:
        return self.session.get(self.world.url + path, headers=self.headers(key))

    def headers(self, key: str | None = None) -> dict[str, str]:
        return {"Authorization": f"Bearer {key}"} if key else self.world.bearer

    async def answer(self, model: str, **more: Any) -> tuple[int, dict[str, Any]]:
        async with self.ask(model, **more) as answer:
            return answer.status, await answer.json()


@asynccontextmanager
async def world(
    folder: Path, database_url: str, **environ: str
) -> AsyncIterator[tuple[World, Caller]]:
    """A gateway process of this test's own."""
    made = World(folder, database_url, **environ)
    made.start()
    try:
        async with made.visit() as visit:
            yield visit
    finally:
        made.end()
