"""One real `vllm serve`, started from the command line that the domain renders."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx2

from controlplane.domain.engines import EngineOrder, command
from controlplane.engine_envs import EngineEnv

KEY = "key-of-the-engine"
START_SECONDS = 600.0  # three at once on two busy cores took 280 once
_LOOK_SECONDS = 0.5


@dataclass(frozen=True)
class Serving:
    """A running engine. `log` is all that its processes printed."""

    name: str
    process: subprocess.Popen[bytes]
    port: int
    log_file: Path

    @property
    def log(self) -> str:
        return self.log_file.read_text(encoding="utf-8", errors="replace")

    def answers(self) -> bool:
        if self.process.poll() is not None:
            raise AssertionError(f"the engine ended:\n{self.log[-4000:]}")
        try:
            return self._get("/health").status_code == 200
        except httpx2.TransportError:
            return False

    def metric(self, name: str) -> float:
        lines = self._get("/metrics").text.splitlines()
        return sum(float(x.rsplit(" ", 1)[1]) for x in lines if x.startswith(name + "{"))

    def log_probabilities(
        self, prompts: Sequence[str], *, temperature: float, tokens: int
    ) -> list[float]:
        """The log-probability, by the model itself, of each token that it answered with."""

        def ask(prompt: str) -> list[float]:
            answer = httpx2.post(
                f"http://127.0.0.1:{self.port}/v1/chat/completions",
                headers={"Authorization": f"Bearer {KEY}"},
                json={
                    "model": self.name,
                    "messages": [{"role": "user", "content": prompt}],
                    "temperature": temperature,
                    "max_tokens": tokens,
                    "logprobs": True,
                },
                timeout=280,
            )
            answer.raise_for_status()
            content = answer.json()["choices"][0]["logprobs"]["content"]
            return [float(token["logprob"]) for token in content]

        with ThreadPoolExecutor(8) as pool:
            return [value for some in pool.map(ask, prompts) for value in some]

    def _get(self, path: str) -> httpx2.Response:
        return httpx2.get(f"http://127.0.0.1:{self.port}{path}", timeout=10)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def serve(env: EngineEnv, order: EngineOrder, log_file: Path, **more: str) -> Iterator[Serving]:
    """Start the engine that `order` describes, under its environment and `more`; returns at
    once. Its whole process group ends with the block."""
    rendered = command(order)
    with log_file.open("wb") as log:
        process = subprocess.Popen(
            [*env.program, *rendered.args],
            env=_environment(env, rendered.env) | more,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    try:
        yield Serving(order.served_name, process, order.port, log_file)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def wait_until_all_answer(engines: Sequence[Serving]) -> None:
    deadline = time.monotonic() + START_SECONDS
    for engine in engines:
        while not engine.answers():
            assert time.monotonic() < deadline, engine.log[-4000:]
            time.sleep(_LOOK_SECONDS)


def _environment(env: EngineEnv, rendered: Mapping[str, str]) -> dict[str, str]:
    ours = {k: v for k, v in os.environ.items() if not k.startswith(("VLLM_", "SLIPSTREAM_"))}
    preload = {"LD_PRELOAD": str(env.preload)} if env.preload else {}
    return ours | dict(rendered) | preload | {"VLLM_API_KEY": KEY}
