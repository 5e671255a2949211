"""The one-machine system for tests, process by process: the real api, gateway and worker over
real stores, with the stub engine, and a hand on each of them."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import httpx2
import psutil

from controlplane.embedded.children import spawn

ROOT = Path(__file__).resolve().parents[2]
STUB = ROOT / "tests" / "stub_engine" / "__main__.py"
ADMIN_KEY = "system-test-admin-key"
PATIENCE = 30.0
_T = TypeVar("_T")


def until(
    look: Callable[[], _T | None], what: str, patience: float = PATIENCE, every: float = 0.05
) -> _T:
    """The first truthy answer of `look`; AssertionError naming `what` when none comes."""
    deadline = time.monotonic() + patience
    while True:
        found = look()
        if found:
            return found
        assert time.monotonic() < deadline, f"never came: {what}"
        time.sleep(every)


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


@dataclass
class Machine:
    """Start what you need, kill what you like; `close` leaves nothing behind."""

    folder: Path
    database_url: str
    redis_url: str
    overrides: dict[str, str] = field(default_factory=dict)
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.port, self.api_port, self.metrics_port = free_port(), free_port(), free_port()
        self.data, self.models = self.folder / "data", self.folder / "models"
        self.data.mkdir(parents=True, exist_ok=True)
        self.url = f"http://127.0.0.1:{self.port}"
        self.http = httpx2.Client(
            base_url=self.url, headers={"Authorization": f"Bearer {ADMIN_KEY}"}, timeout=30
        )

    def environ(self) -> dict[str, str]:
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("SLIPSTREAM_", "HF_"))}
        return kept | {
            "SLIPSTREAM_DATA_DIR": str(self.data),
            "SLIPSTREAM_DATABASE_URL": self.database_url,
            "SLIPSTREAM_REDIS_URL": self.redis_url,
            "SLIPSTREAM_PORT": str(self.port),
            "SLIPSTREAM_API_PORT": str(self.api_port),
            "SLIPSTREAM_WORKER_METRICS_PORT": str(self.metrics_port),
            "SLIPSTREAM_ADMIN_KEY": ADMIN_KEY,
            "SLIPSTREAM_ENGINE_COMMAND": f"{sys.executable} {STUB}",
            "SLIPSTREAM_SWEEP_SECONDS": "2",
            "SLIPSTREAM_SETTLE_SECONDS": "1",
            "SLIPSTREAM_MINIMUM_UPTIME": "1",
            "SLIPSTREAM_RETRY_FIRST": "0.2",
            "SLIPSTREAM_STOP_GRACE": "2",
            "SLIPSTREAM_DRAIN_SECONDS": "20",
            "SLIPSTREAM_CPU_SLOTS": "1",
            "PYTHONPATH": str(ROOT),
            **self.overrides,
        }

    def bootstrap(self) -> None:
        self._run("controlplane.services.bootstrap")

    def _run(self, module: str) -> None:
        subprocess.run(
            [sys.executable, "-m", module], env=self.environ(), cwd=self.folder, check=True,
            capture_output=True, timeout=60,
        )  # fmt: skip

    def start(self, *names: str) -> None:
        """Start `api`, `gateway` or `worker`; a name such as `worker-2` is a second one."""
        for name in names:
            module = {"api": "controlplane.api", "gateway": "controlplane.gateway"}.get(
                name, "worker"
            )
            self.processes[name] = spawn(
                [sys.executable, "-m", module], log=self.folder / f"{name}.log",
                env=self.environ(), cwd=self.folder, when_orphaned=signal.SIGKILL,
            )  # fmt: skip

    def up(self) -> None:
        self.bootstrap()
        self.start("api", "gateway", "worker")
        self.wait_ready()

    def wait_ready(self) -> None:
        def look() -> bool:
            try:
                return self.http.get("/readyz").status_code == 200
            except httpx2.TransportError:
                return False

        until(look, "readiness")

    def kill(self, name: str, how: signal.Signals = signal.SIGKILL) -> None:
        process = self.processes.pop(name)
        process.send_signal(how)
        process.wait(timeout=30)

    def tidy(self, redis_url: str) -> None:
        """Whole and empty again: every part runs, no deployment and no engine is left."""
        for name in [n for n in self.processes if n.startswith("worker-")]:
            self.kill(name)
        if self.redis_url != redis_url:
            self.redis_url = redis_url
            for name in list(self.processes):
                self.kill(name)
        for name in ("api", "gateway", "worker"):
            if name in self.processes and self.processes[name].poll() is not None:
                self.processes.pop(name)
            if name not in self.processes:
                self.start(name)
        self.wait_ready()
        for d in self._deployments():
            self.http.delete(f"/api/v1/deployments/{d['id']}")
        until(lambda: not self._deployments(), "no deployment left", every=0.2)
        until(lambda: not self.engines(), "no engine left")

    def _deployments(self) -> list[dict[str, Any]]:
        answer = self.http.get("/api/v1/deployments?limit=200")
        return list(answer.json()["items"]) if answer.status_code == 200 else [{"id": "unknown"}]

    def model(self, name: str, **behaviour: Any) -> str:
        """Register a stub model under `local/NAME` that behaves as `behaviour` says. A name
        that an earlier test used gets another behaviour."""
        folder = self.models / name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        self.http.delete(f"/api/v1/models/{name}")
        (folder / "config.json").write_text('{"architectures": ["LlamaForCausalLM"]}')
        (folder / "model.safetensors").write_bytes(b"\0" * 16)
        (folder / "stub.json").write_text(json.dumps(behaviour))
        answer = self.http.post("/api/v1/models", json={"name": name, "path": str(folder)})
        assert answer.status_code == 201, answer.text
        return f"local/{name}"

    def deploy(self, name: str, model: str, **spec: Any) -> dict[str, Any]:
        answer = self.http.post("/api/v1/deployments", json={"name": name, "model": model, **spec})
        assert answer.status_code == 201, answer.text
        return dict(answer.json())

    def get(self, ref: str) -> dict[str, Any]:
        answer = self.http.get(f"/api/v1/deployments/{ref}")
        assert answer.status_code == 200, answer.text
        return dict(answer.json())

    def events(self, ref: str) -> list[dict[str, Any]]:
        answer = self.http.get(f"/api/v1/deployments/{ref}/events?limit=200")
        assert answer.status_code == 200, answer.text
        return list(answer.json()["items"])

    def phases(self, ref: str) -> list[str]:
        """The phases that the deployment went through, oldest first, by its events."""
        return [e["phase"] for e in reversed(self.events(ref)) if e["kind"] == "phase"]

    def wait_phase(self, ref: str, *phases: str, patience: float = PATIENCE) -> dict[str, Any]:
        last: dict[str, Any] = {}

        def look() -> dict[str, Any] | None:
            try:
                last.update(self.get(ref))
            except httpx2.TransportError:
                return None
            return last if last["status"]["phase"] in phases else None

        try:
            return until(look, f"{ref} in {phases}", patience)
        except AssertionError as e:
            raise AssertionError(f"{e}; last seen: {last.get('status')}\n{self.tail()}") from None

    def tail(self) -> str:
        """The last lines of each process's log, for a failed assertion."""
        logs = sorted(self.folder.glob("*.log"))
        return "\n".join(f"== {p.name}\n{p.read_text(errors='replace')[-3000:]}" for p in logs)

    def ask(
        self, name: str, text: str = "Hello", *, timeout: float = 60, **body: Any
    ) -> httpx2.Response:
        request = {"model": name, "messages": [{"role": "user", "content": text}], **body}
        return self.http.post("/v1/chat/completions", json=request, timeout=timeout)

    def stream(self, name: str, text: str = "Hello", **body: Any) -> Iterator[dict[str, Any]]:
        """The events of a streamed answer, as they come, without `[DONE]`."""
        request = {
            "model": name, "messages": [{"role": "user", "content": text}], "stream": True, **body,
        }  # fmt: skip
        with self.http.stream("POST", "/v1/chat/completions", json=request, timeout=60) as answer:
            assert answer.status_code == 200, answer.read()
            for line in answer.iter_lines():
                if line.startswith("data: ") and line != "data: [DONE]":
                    yield json.loads(line[6:])

    def engines(self, name: str | None = None) -> list[psutil.Process]:
        """Live engine processes of this data directory (not their shims or children): those
        that serve a model and write to a log of ours."""
        found = []
        for p in psutil.process_iter():
            try:
                line = p.cmdline()
                log = os.readlink(f"/proc/{p.pid}/fd/1")
            except (psutil.Error, OSError):
                continue
            served = [a.split("=", 1)[1] for a in line if a.startswith("--served-model-name=")]
            shim = any(a.endswith("shim.py") for a in line)
            ours = log.startswith(str(self.data.resolve()))
            if ours and served and not shim and name in (None, served[0]):
                found.append(p)
        return found

    def close(self) -> None:
        self.http.close()
        for name in list(self.processes):
            self.kill(name)
        subprocess.run(
            [sys.executable, "-m", "worker.drivers.local.stop_all"], env=self.environ(),
            cwd=self.folder, check=False, capture_output=True, timeout=60,
        )  # fmt: skip
        for p in self.engines():
            p.kill()
