"""The command line in this process, against a small HTTP server of the tests' own, or against
the real API over a real database."""

from __future__ import annotations

import io
import json
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx2
import pytest

from controlplane.cli import main, waiting
from tests.api.conftest import admin_key, app, hints, live, server, site

__all__ = ["admin_key", "app", "hints", "live", "server", "site"]


@dataclass
class Ended:
    """How a command ended, and what it said."""

    code: int
    out: str
    err: str


@dataclass
class Asked:
    method: str
    path: str
    query: str
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class Answer:
    status: int = 200
    body: Any = field(default_factory=dict)
    kind: str = "application/json"

    @property
    def bytes(self) -> bytes:
        return self.body if isinstance(self.body, bytes) else json.dumps(self.body).encode()


class Server:
    """Answers as scripted: the last answer of a call is given again and again."""

    def __init__(self) -> None:
        self.asked: list[Asked] = []
        self.script: dict[tuple[str, str], list[Answer | Callable[[Any], None]]] = {}
        self.fallback = Answer(404, problem(404, "no_such_path", "There is nothing at this path."))
        script = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def _answer(self) -> None:
                size = int(self.headers.get("Content-Length") or 0)
                parts = urlsplit(self.path)
                asked = Asked(
                    self.command,
                    parts.path,
                    parts.query,
                    {k.lower(): v for k, v in self.headers.items()},
                    self.rfile.read(size),
                )
                script.asked.append(asked)
                answers = script.script.get((asked.method, asked.path), [script.fallback])
                answer = answers.pop(0) if len(answers) > 1 else answers[0]
                if not isinstance(answer, Answer):
                    answer(self)
                    return
                self.send_response(answer.status)
                self.send_header("Content-Type", answer.kind)
                self.send_header("Content-Length", str(len(answer.bytes)))
                self.end_headers()
                self.wfile.write(answer.bytes)

            do_GET = do_POST = do_PATCH = do_DELETE = _answer  # noqa: N815

            def log_message(self, *args: Any) -> None:
                pass

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._http.daemon_threads = True
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.02,))
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._http.server_address[1]}"

    def says(self, method: str, path: str, *answers: Any) -> None:
        """What a call below /api/v1 (or at /v1) gets; plain objects are answers of status 200."""
        full = path if path.startswith("/v1/") else f"/api/v1{path}"
        known = [a if isinstance(a, Answer) or callable(a) else Answer(body=a) for a in answers]
        self.script[method, full] = known

    def close(self) -> None:
        self._http.shutdown()
        self._thread.join()
        self._http.server_close()


def problem(status: int, code: str, detail: str, hint: str = "", **more: Any) -> dict[str, Any]:
    body = {"type": "urn:x", "title": "x", "status": status, "code": code, "detail": detail}
    return {**body, "hint": hint, "errors": [], **more}


def deployment(phase: str = "ready", light: str = "green", **more: Any) -> dict[str, Any]:
    """A deployment as the API tells it."""
    status = {
        "phase": phase,
        "light": light,
        "reason": None,
        "message": "",
        "hint": "",
        "since": "2026-12-01T03:00:00Z",
        "replicas": {"wanted": 1, "ready": 0, "starting": 0, "draining": 0, "failed": 0},
        "progress": None,
        "resolved": {"method": None, "tokens": None, "engine": None},
        **more.pop("status", {}),
    }
    spec = {
        "name": "hello",
        "model": "demo/smollm2-135m",
        "tier": "cpu",
        "draft_model": None,
        "speculation": {"method": "auto", "tokens": "auto", "vocabulary": "same"},
        "scale_down": {"policy": "idle", "after": "1h"},
        "wake": {"mode": "hold", "deadline": "15m", "max_waiting": 100},
        "engine": {"version": None, "args": {}},
        "labels": {},
    }
    return {
        "id": "dep_01JD0000000000000000000000",
        "name": "hello",
        "workspace": "default",
        "spec": spec,
        "generation": 1,
        "observed_generation": 1,
        "desired": "running",
        "status": status,
        "last_active_at": None,
        "sleeps_at": None,
        "created_at": "2026-12-01T03:00:00Z",
        "updated_at": "2026-12-01T03:00:00Z",
        **more,
    }


@pytest.fixture(autouse=True)
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No server, key or data directory of a person's own."""
    for name in ("SLIPSTREAM_URL", "SLIPSTREAM_API_KEY", "SLIPSTREAM_ADMIN_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("SLIPSTREAM_DATA_DIR", str(tmp_path / "no-data"))
    monkeypatch.setattr(waiting, "LOOK_EVERY", 0.01)


@pytest.fixture
def scripted(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    made = Server()
    monkeypatch.setenv("SLIPSTREAM_URL", made.url)
    monkeypatch.setenv("SLIPSTREAM_API_KEY", "sl_a_key")
    yield made
    made.close()


Cli = Callable[..., Ended]


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Cli:
    """Runs one command line through the real entry; `stdin` is what is piped into it."""

    def run(*words: str, stdin: str | bytes = "") -> Ended:
        given = stdin if isinstance(stdin, bytes) else stdin.encode()
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(given)))
        capsys.readouterr()
        code = main.run(words)
        said = capsys.readouterr()
        assert "Traceback" not in said.out + said.err
        assert "fault of its own" not in said.err, said.err
        return Ended(code, said.out, said.err)

    return run


@pytest.fixture
def real(cli: Cli, live: httpx2.Client, admin_key: str, monkeypatch: pytest.MonkeyPatch) -> Cli:
    """The command line against the real API."""
    monkeypatch.setenv("SLIPSTREAM_URL", str(live.base_url).rstrip("/"))
    monkeypatch.setenv("SLIPSTREAM_API_KEY", admin_key)
    return cli
