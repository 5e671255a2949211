"""How fast the control plane reacts, with the stub engine so that only our own time counts."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import httpx2
import psutil

from tests.system.machine import Machine, until

ROUNDS = 20


@dataclass(frozen=True, slots=True)
class Figure:
    """One measured quantity: its values in the order measured, its unit, and the goal that
    its 95th percentile is held to (None: for information)."""

    what: str
    values: list[float]
    unit: str
    goal: float | None = None


def reaction(machine: Machine) -> list[Figure]:
    """POST to engine process, and the engine's first good `/v1/models` to phase ready."""
    model = machine.model("bench", start_seconds=0.3)
    to_process, to_ready = [], []
    for n in range(ROUNDS):
        name = f"bench-{n}"
        begun = time.monotonic()
        machine.deploy(name, model)
        engine = _poll(lambda name=name: next(iter(machine.engines(name)), None))  # type: ignore[misc]
        to_process.append(time.monotonic() - begun)
        _poll(lambda engine=engine: _lists_its_model(engine))  # type: ignore[misc]
        answered = time.monotonic()
        _poll(lambda name=name: machine.get(name)["status"]["phase"] == "ready")  # type: ignore[misc]
        to_ready.append(time.monotonic() - answered)
        machine.http.delete(f"/api/v1/deployments/{name}")
        until(lambda: not machine.engines(), "the slot free again")
    return [
        Figure("POST to engine process", to_process, "s", goal=1.0),
        Figure("first good /v1/models to ready", to_ready, "s", goal=1.5),
    ]


def _poll(look: Callable[[], object]) -> psutil.Process:
    return until(look, "the next step", every=0.005)  # type: ignore[return-value]


def _lists_its_model(engine: psutil.Process) -> bool:
    port = next(a for a in engine.cmdline() if a.startswith("--port=")).split("=")[1]
    key = engine.environ().get("VLLM_API_KEY", "")
    try:
        answer = httpx2.get(
            f"http://127.0.0.1:{port}/v1/models", headers={"Authorization": f"Bearer {key}"}
        )
    except httpx2.TransportError:
        return False
    return answer.status_code == 200
