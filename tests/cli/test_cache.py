"""`slipstream cache` and `slipstream models`, as a person types them."""

from __future__ import annotations

import io
import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import close_session

from controlplane.cli.main import run
from controlplane.domain.reasons import Reason
from controlplane.hub.attempts import Attempt
from controlplane.hub.cache import repo_folder
from controlplane.hub.download import Hub, download, repo_lock
from controlplane.hub.failures import BadWeights
from controlplane.paths import DataDir
from tests.hub_server.fixtures import hub
from tests.hub_server.repos import tiny_model
from tests.hub_server.server import HubServer

__all__ = ["hub"]

MODEL = "acme/tiny"


@dataclass
class Api:
    """Answers as the API does where these commands ask it."""

    port: int = 0
    deployments: list[dict[str, Any]] = field(default_factory=list)
    calls: list[tuple[str, str, Any]] = field(default_factory=list)

    def deploy(self, name: str, phase: str, draft: str | None = None, model: str = MODEL) -> None:
        spec = {"name": name, "model": model, "draft_model": draft}
        self.deployments.append({"name": name, "spec": spec, "status": {"phase": phase}})


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> DataDir:
    """A data directory in which nothing runs."""
    for name in ("SLIPSTREAM_URL", "SLIPSTREAM_API_KEY", "SLIPSTREAM_ADMIN_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("SLIPSTREAM_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setenv("SLIPSTREAM_URL", "http://127.0.0.1:1")
    return DataDir(tmp_path / "data")


@pytest.fixture
def api(data: DataDir, monkeypatch: pytest.MonkeyPatch) -> Iterator[Api]:
    told = Api()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(length)) if length else None
            told.calls.append((self.command, self.path, body))
            answer: dict[str, Any] = {"items": told.deployments, "next_cursor": None}
            if self.path.startswith("/api/v1/models"):
                row = {"name": "local/mine", "path": "/weights/mine", "ready": True}
                answer = {"items": [row]} if self.command == "GET" else row
            content = json.dumps(answer).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def do_POST(self) -> None:
            self.do_GET()

        def do_DELETE(self) -> None:
            self.do_GET()

        def log_message(self, *_: object) -> None:
            """`calls` is the log."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    monkeypatch.setenv("SLIPSTREAM_URL", f"http://127.0.0.1:{server.server_address[1]}")
    yield told
    server.shutdown()
    server.server_close()


@pytest.fixture
def cached(data: DataDir, hub: HubServer) -> str:
    """One model in the cache; its commit."""
    hub.add(MODEL, tiny_model(50_000))
    commit = download(Hub(hub.url), data.hub_cache, MODEL, None, report=lambda _: None).commit
    close_session()
    return commit


def test_an_empty_cache_is_an_empty_list(data: DataDir, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["cache", "ls", "-o", "json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"items": []}
    assert not data.root.exists()


def test_cached_models_are_listed_with_who_uses_them(
    cached: str, api: Api, capsys: pytest.CaptureFixture[str]
) -> None:
    api.deploy("one", "ready")
    api.deploy("two", "asleep", model="acme/other", draft=MODEL)
    api.deploy("three", "paused")
    assert run(["cache", "ls", "-o", "json"]) == 0
    (item,) = json.loads(capsys.readouterr().out)["items"]
    assert (item["model"], item["revision"], item["names"]) == (MODEL, cached, ["main"])
    assert item["size_bytes"] > 50_000
    assert item["complete"] is True
    assert item["used_by"] == ["one", "two"]
    assert run(["cache", "ls"]) == 0
    line = capsys.readouterr().out.splitlines()[1]
    assert MODEL in line
    assert "0.1 MB" in line
    assert "one, two" in line


def test_who_uses_a_model_is_unknown_without_a_server(
    cached: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["cache", "ls", "-o", "json"]) == 0
    (item,) = json.loads(capsys.readouterr().out)["items"]
    assert item["used_by"] is None


def test_a_model_in_use_stays(
    cached: str, api: Api, data: DataDir, capsys: pytest.CaptureFixture[str]
) -> None:
    api.deploy("one", "asleep")
    assert run(["cache", "rm", MODEL, "--yes"]) == 4
    assert "Deployments use acme/tiny: one." in capsys.readouterr().err
    assert repo_folder(data.hub_cache, MODEL).is_dir()


@pytest.mark.parametrize("phase", ["failed", "paused"])
def test_a_model_whose_deployments_rest_is_removed_and_its_failure_forgotten(
    cached: str, api: Api, data: DataDir, phase: str
) -> None:
    api.deploy("one", phase)
    attempt = Attempt(data.download(MODEL, None))
    attempt.folder.mkdir(parents=True)
    attempt.fail(BadWeights("Not what it lists."), _now())
    failed = attempt.failed()
    assert failed is not None
    assert failed.reason is Reason.BAD_WEIGHTS
    assert run(["cache", "rm", MODEL, "--yes"]) == 0
    assert not repo_folder(data.hub_cache, MODEL).exists()
    assert attempt.failed() is None


def test_nothing_is_removed_without_a_yes(
    cached: str, api: Api, data: DataDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO())
    assert run(["cache", "rm", MODEL]) != 0
    assert repo_folder(data.hub_cache, MODEL).is_dir()


def test_a_model_that_is_being_downloaded_stays(cached: str, data: DataDir) -> None:
    with repo_lock(data.hub_cache, MODEL):
        assert run(["cache", "rm", MODEL, "--yes"]) == 4
    assert repo_folder(data.hub_cache, MODEL).is_dir()


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["acme/none"], 3),
        ([MODEL, "--revision", "v9"], 3),
        (["../x"], 2),
        ([MODEL, "--revision", "../x"], 2),
    ],
)
def test_what_is_not_cached_is_not_found(
    cached: str, words: list[str], code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["cache", "rm", *words, "--yes"]) == code
    assert "Traceback" not in capsys.readouterr().err


def test_a_folder_is_registered_by_its_absolute_path(
    api: Api, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(["models", "add", "mine", "--path", "weights"]) == 0
    (call,) = api.calls
    assert call == ("POST", "/api/v1/models", {"name": "mine", "path": f"{tmp_path}/weights"})
    assert "local/mine" in capsys.readouterr().out


def test_models_are_listed(api: Api, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["models", "ls"]) == 0
    assert capsys.readouterr().out.splitlines()[1].split() == ["local/mine", "yes", "/weights/mine"]


def test_a_name_to_forget_is_one_part_of_the_path(api: Api) -> None:
    assert run(["models", "rm", "local/../keys"]) == 0
    assert api.calls[0][:2] == ("DELETE", "/api/v1/models/%2E%2E%2Fkeys")


def test_without_a_server_models_can_not_be_told(
    data: DataDir, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["models", "ls"]) == 5
    assert "No server answers" in capsys.readouterr().err


def _now() -> datetime:
    return datetime.now(UTC)
