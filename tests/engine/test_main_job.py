"""The main job with real vLLM and the demo pair: yellow, green, a streamed answer with tokens
that the draft proposed, asleep, woken by the next request, deleted without a trace."""

from collections.abc import Iterator
from pathlib import Path

import httpx2
import psutil
import pytest

from tests.system.machine import Machine, until

pytestmark = [pytest.mark.engine, pytest.mark.system, pytest.mark.timeout(900)]

START = 300.0  # a plain vLLM start takes 34-71 s on two cores that are busy with nothing else
ACCEPTED = "vllm:spec_decode_num_accepted_tokens_total"
PROMPT = (
    "You are a support agent. Write a short polite reply to this customer:"
    " 'My smart watch makes a strange noise. How long will a repair take?'"
)


@pytest.fixture
def machine(
    tmp_path: Path, database_url: str, valkey_url: str, engine_home: Path
) -> Iterator[Machine]:
    """A machine whose engine is vLLM, with the environment and demo pair of `engine_home`."""
    made = Machine(tmp_path, database_url, valkey_url)
    made.overrides |= {"SLIPSTREAM_ENGINE_COMMAND": "", "SLIPSTREAM_SETTLE_SECONDS": "1"}
    (made.data / "models").mkdir()
    (made.data / "engines").symlink_to(engine_home / "engines")
    (made.data / "models" / "demo").symlink_to(engine_home / "models" / "demo")
    try:
        made.up()
        yield made
    finally:
        made.close()


def _metric(engine: psutil.Process, name: str) -> float:
    port = next(a for a in engine.cmdline() if a.startswith("--port=")).split("=")[1]
    lines = httpx2.get(f"http://127.0.0.1:{port}/metrics", timeout=10).text.splitlines()
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(name + "{"))


def _lives(p: psutil.Process) -> bool:
    """True unless it is gone, or a corpse that nobody has collected yet."""
    try:
        return p.is_running() and p.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_the_demo_pair_runs_the_main_job_on_the_real_engine(machine: Machine) -> None:
    made = machine.deploy(
        "hello",
        "demo/smollm2-135m",
        draft_model="demo/smollm2-draft",
        context_length=2048,
        scale_down={"policy": "idle", "after": "5s"},
    )
    assert made["status"]["phase"] == "queued"
    reasons: set[str] = set()

    def ready() -> bool:
        status = machine.get("hello")["status"]
        reasons.add(str(status["reason"]))
        assert status["phase"] in {"queued", "starting", "ready"}, status
        return bool(status["phase"] == "ready")

    until(ready, "ready", START)
    assert {"StartingEngine", "LoadingWeights"} <= reasons
    resolved = machine.get("hello")["status"]["resolved"]
    assert (resolved["method"], resolved["tokens"]) == ("draft_model", 3)
    (engine,) = machine.engines("hello")
    before = _metric(engine, ACCEPTED)

    parts = list(
        machine.stream(
            "hello", PROMPT, temperature=0, max_tokens=64, stream_options={"include_usage": True}
        )
    )
    text = "".join(p["choices"][0]["delta"].get("content") or "" for p in parts if p["choices"])
    assert len(text) > 40
    assert parts[-1]["usage"]["completion_tokens"] > 20
    assert _metric(engine, ACCEPTED) - before > 5

    machine.wait_phase("hello", "draining", "asleep", patience=60)
    machine.wait_phase("hello", "asleep", patience=60)
    assert not engine.is_running()
    assert machine.engines() == []

    answer = machine.ask("hello", PROMPT, temperature=0, max_tokens=16, timeout=START)
    assert answer.status_code == 200, answer.text
    assert answer.json()["choices"][0]["message"]["content"]
    (woken,) = machine.engines("hello")
    assert woken.pid != engine.pid
    port = next(a for a in woken.cmdline() if a.startswith("--port=")).split("=")[1]
    family = woken.children(recursive=True)

    assert machine.http.delete("/api/v1/deployments/hello").status_code == 202
    until(lambda: machine.http.get("/api/v1/deployments/hello").status_code == 404, "deleted", 60)
    assert machine.engines() == []
    assert not [p for p in family if _lives(p)]
    with pytest.raises(httpx2.ConnectError):
        httpx2.get(f"http://127.0.0.1:{port}/health")
    assert not (machine.data / "replicas" / made["id"]).exists()
    assert (machine.data / "models" / "demo" / "smollm2-135m" / "config.json").exists()
    machine.deploy("hello", "demo/smollm2-135m")
