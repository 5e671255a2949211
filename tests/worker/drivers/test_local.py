"""What is the local driver's own: environment, ports, logs, reasons, files."""

from __future__ import annotations

import socket
from dataclasses import replace
from pathlib import Path

import pytest

from controlplane.domain.deployment import Deployment
from controlplane.domain.reasons import Reason
from tests.worker.drivers.contract import fence, until
from tests.worker.drivers.stubs import LocalWorld
from worker.drivers.base import (
    EffectRefused,
    EngineSeen,
    EngineState,
    ReplicaSeen,
    ReplicaState,
    WeightsOrder,
)
from worker.drivers.local.driver import FoundEngine
from worker.drivers.local.ports import COUNT, FIRST
from worker.drivers.local.records import Life, Order, ReplicaFolder, replica_folders
from worker.drivers.local.start import Program

LOGS = Path(__file__).parents[2] / "domain" / "engine_logs"


def _folder(world: LocalWorld, d: Deployment) -> ReplicaFolder:
    [folder] = replica_folders(world.data, d.id)
    return folder


def _facts(world: LocalWorld, d: Deployment) -> tuple[Order, Life]:
    folder = _folder(world, d)
    order, life = folder.order(), folder.life()
    assert order is not None
    assert life is not None
    return order, life


def _exited(world: LocalWorld, d: Deployment) -> ReplicaSeen:
    return until(lambda: [s for s in world.seen(d) if s.state is ReplicaState.EXITED])[0]


SECRETS = {
    "HF_TOKEN": "hf_secret",
    "HUGGING_FACE_HUB_TOKEN": "hf_secret",
    "SLIPSTREAM_ADMIN_KEY": "sk-secret",
    "SLIPSTREAM_DATABASE_URL": "postgresql://u:secret@h/d",
    "SLIPSTREAM_REDIS_URL": "redis://:secret@h",
    "DATABASE_URL": "postgresql://u:secret@h/d",
    "AWS_SECRET_ACCESS_KEY": "secret",
    "PYTHONPATH": "/secret",
}


def test_an_engine_sees_what_it_needs_of_the_environment_and_nothing_else(
    local: LocalWorld,
) -> None:
    local.ours |= SECRETS
    local.driver = local.again()
    d = local.deployment()
    local.up(d)
    order, life = _facts(local, d)
    raw = Path(f"/proc/{life.pid}/environ").read_bytes().decode()
    env = dict(x.split("=", 1) for x in raw.split("\0") if x)
    allowed = {
        *("PATH", "HOME", "TMPDIR", "LANG", "LC_ALL", "TZ", "LD_LIBRARY_PATH", "CUDA_HOME"),
        *("VLLM_API_KEY", "VLLM_PLUGINS", "VLLM_NO_USAGE_STATS", "HF_HUB_OFFLINE"),
        *("TRANSFORMERS_OFFLINE", "VLLM_CPU_KVCACHE_SPACE", "VLLM_CPU_OMP_THREADS_BIND"),
    }
    assert env.keys() <= allowed
    assert "secret" not in raw
    assert env["VLLM_API_KEY"] == "engine-key-of-the-test"
    assert env["HOME"] == str(local.data.engine_home)
    assert env["TMPDIR"] == order.tmp


def test_the_engine_key_is_in_no_command_line_and_in_files_of_the_user_only(
    local: LocalWorld,
) -> None:
    d = local.deployment()
    local.up(d)
    _, life = _facts(local, d)
    for pid in (life.pid, life.session):
        assert b"engine-key" not in Path(f"/proc/{pid}/cmdline").read_bytes()
    for path in local.data.deployment(d.id).rglob("*"):
        assert path.stat().st_mode & 0o077 == 0


def test_a_preloaded_library_reaches_engines_on_the_processor(local: LocalWorld) -> None:
    local.program = replace(local.program or Program(()), preload="")
    d = local.deployment()
    local.up(d)
    _, life = _facts(local, d)
    assert b"LD_PRELOAD=\0" in Path(f"/proc/{life.pid}/environ").read_bytes()


def test_an_engine_listens_on_the_loopback_and_asks_for_its_key(local: LocalWorld) -> None:
    d = local.deployment()
    seen = local.up(d)
    order, _ = _facts(local, d)
    assert seen.endpoint == f"http://127.0.0.1:{order.port}"
    (_folder(local, d).path / "engine-key").write_text("another")
    assert local.state(d) is ReplicaState.SILENT


def test_nothing_is_left_after_a_stop_and_a_forget(local: LocalWorld) -> None:
    d = local.deployment()
    local.steer(d, spawn_child=True)
    local.up(d)
    order, _ = _facts(local, d)
    local.driver.stop(d.id, 0, "0123456789", kill=False, fence=fence(d))
    until(lambda: not local.seen(d))
    local.driver.forget(d.id, fence(d))
    assert not local.leftovers()
    assert not Path(order.tmp).exists()
    assert [p.name for p in local.data.replicas.iterdir()] == [".ports"]
    with socket.socket() as s:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        s.bind(("127.0.0.1", order.port))


def test_the_log_of_a_stopped_replica_stays_for_people(local: LocalWorld) -> None:
    d = local.deployment()
    local.up(d)
    folder = _folder(local, d)
    local.driver.stop(d.id, 0, "0123456789", kill=False, fence=fence(d))
    until(lambda: not local.seen(d))
    assert "Application startup complete" in folder.log.read_text()


@pytest.mark.parametrize(
    ("log", "status", "reason"),
    [
        ("kvsmall", 1, Reason.CONTEXT_TOO_LONG),
        ("truncweights", 1, Reason.BAD_WEIGHTS),
        ("unknownflag", 2, Reason.BAD_ENGINE_ARGUMENTS),
        ("vocabmismatch", 1, Reason.DRAFT_VOCABULARY_MISMATCH),
    ],
)
def test_a_start_that_fails_says_why_by_the_engines_own_words(
    local: LocalWorld, log: str, status: int, reason: Reason
) -> None:
    d = local.deployment()
    local.steer(d, fail_log=str(LOGS / f"{log}.log"), exit_code=status)
    local.driver.start(local.order(d), fence(d))
    seen = _exited(local, d)
    assert seen.reason is reason
    assert seen.detail


def test_an_unknown_failure_is_shown_with_the_engines_last_words(local: LocalWorld) -> None:
    d = local.deployment()
    words = Path(local.model_path(d)) / "words.log"
    words.write_text("Traceback (most recent call last):\nKeyError: 'rope_scaling'\n")
    local.steer(d, fail_log="words.log", exit_code=1)
    local.driver.start(local.order(d), fence(d))
    seen = _exited(local, d)
    assert seen.reason is Reason.ENGINE_DIED
    assert seen.detail == "It ended with exit status 1. KeyError: 'rope_scaling'"


def test_a_failure_of_a_former_life_is_not_told_of_this_one(local: LocalWorld) -> None:
    d = local.deployment()
    local.steer(d, fail_log=str(LOGS / "kvsmall.log"), fail_times=1)
    local.driver.start(local.order(d), fence(d))
    assert _exited(local, d).reason is Reason.CONTEXT_TOO_LONG
    local.steer(d, fail_log=None, crash_after_seconds=0)
    local.driver.start(local.order(d), fence(d))
    until(lambda: len(local.starts(d)) == 2)
    assert _exited(local, d).reason is Reason.ENGINE_DIED


def test_a_port_that_another_program_took_is_not_taken_again(local: LocalWorld) -> None:
    d = local.deployment()
    local.steer(d, fail_log=str(LOGS / "portinuse.log"), fail_times=1)
    local.driver.start(local.order(d), fence(d))
    assert _exited(local, d).reason is Reason.PORT_IN_USE
    taken = _facts(local, d)[0].port
    local.up(d)
    assert _facts(local, d)[0].port != taken


def test_an_engine_that_serves_under_another_name_is_not_answering(local: LocalWorld) -> None:
    d = local.deployment()
    local.steer(d, wrong_name="something-else")
    local.driver.start(local.order(d), fence(d))
    seen = until(lambda: [s for s in local.seen(d) if "does not list" in s.detail])[0]
    assert seen.state is ReplicaState.STARTING


def test_an_engine_that_tells_no_counts_is_unknown_and_not_idle(local: LocalWorld) -> None:
    d = local.deployment()
    local.steer(d, no_metrics=True)
    seen = local.up(d)
    assert (seen.running, seen.waiting) == (None, None)


def test_an_engine_that_is_not_well_any_more_is_silent(local: LocalWorld) -> None:
    d = local.deployment()
    local.up(d)
    local.steer(d, health_status=503)
    until(lambda: local.state(d) is ReplicaState.SILENT)
    local.steer(d, health_status=200)
    until(lambda: local.state(d) is ReplicaState.ANSWERING)


def test_many_engines_that_never_answer_are_all_seen_in_one_look(local: LocalWorld) -> None:
    ds = [local.deployment(f"d{n}") for n in range(8)]
    for d in ds:
        local.up(d)
        local.go_silent(d)
    found = local.driver.observe(ds)
    assert {s.state for o in found.values() for s in o.replicas} == {ReplicaState.SILENT}
    assert len(found) == 8


def test_the_stages_of_a_start_are_seen_as_the_log_tells_them(local: LocalWorld) -> None:
    d = local.deployment()
    local.steer(d, never_listen=True)
    local.driver.start(local.order(d), fence(d))
    until(lambda: [s.reason for s in local.seen(d)] == [Reason.WARMING_UP])


def test_a_long_log_is_moved_to_the_older_one_and_the_engine_writes_on(
    local: LocalWorld,
) -> None:
    d = local.deployment()
    local.up(d)
    folder = _folder(local, d)
    with open(folder.log, "a", encoding="utf-8") as f:
        f.write("x" * 30_000 + "\n")
    local.driver.observe([d])
    assert "x" * 30_000 in folder.older_log.read_text()
    until(lambda: "GET /health" in folder.log.read_text() or not local.seen(d))
    assert "x" * 100 not in folder.log.read_text()
    assert folder.log.stat().st_size < 20_000


def test_a_program_that_is_not_there_is_refused_and_leaves_nothing(local: LocalWorld) -> None:
    local.program = Program(("/nowhere/vllm",))
    d = local.deployment()
    with pytest.raises(EffectRefused) as refused:
        local.driver.start(local.order(d), fence(d))
    assert refused.value.reason is Reason.ENGINE_MISSING
    assert "No such file" in refused.value.detail
    assert local.state(d) is None
    until(lambda: not local.leftovers())


@pytest.mark.parametrize(
    ("state", "reason"),
    [
        (EngineState.MISSING, Reason.ENGINE_MISSING),
        (EngineState.INSTALLING, Reason.INSTALLING_ENGINE),
    ],
)
def test_an_engine_that_is_not_installed_is_seen_and_refused(
    local: LocalWorld, monkeypatch: pytest.MonkeyPatch, state: EngineState, reason: Reason
) -> None:
    found = FoundEngine(EngineSeen(state, "0.32.0", detail="Downloading."))
    monkeypatch.setattr(local, "find_engine", lambda _kind, _version: found)
    local.driver = local.again()
    d = local.deployment()
    assert local.driver.observe([d])[d.id].engine == found.seen
    with pytest.raises(EffectRefused) as refused:
        local.driver.start(local.order(d), fence(d))
    assert refused.value.reason is reason
    assert not local.driver.owned()


def test_a_tier_that_is_gone_has_no_engine_and_keeps_its_replicas(local: LocalWorld) -> None:
    d = local.deployment()
    local.up(d)
    gone = replace(d, spec=replace(d.spec, tier="no-more"))
    seen = local.driver.observe([gone])[d.id]
    assert seen.engine.state is EngineState.MISSING
    assert [s.state for s in seen.replicas] == [ReplicaState.ANSWERING]


def test_weights_of_target_and_draft_are_seen_and_fetched_under_the_fence(
    local: LocalWorld,
) -> None:
    d = local.deployment()
    d = replace(d, spec=replace(d.spec, draft_model="org/draft", revision="abc"))
    seen = local.driver.observe([d])[d.id].weights
    assert {m: w.revision for m, w in seen.items()} == {"local/hello": "abc", "org/draft": None}
    local.driver.fetch(WeightsOrder("org/draft"), fence(d))
    assert local.weights.ordered == [WeightsOrder("org/draft")]


def test_an_older_hash_of_a_slot_leaves_with_the_start_of_the_next(local: LocalWorld) -> None:
    d = local.deployment()
    local.up(d)
    local.driver.stop(d.id, 0, "0123456789", kill=False, fence=fence(d))
    until(lambda: not local.seen(d))
    local.driver.start(local.order(d, render_hash="9876543210"), fence(d))
    until(lambda: local.state(d) is ReplicaState.ANSWERING)
    assert [f.path.name.endswith("9876543210") for f in replica_folders(local.data, d.id)] == [True]


def test_ports_lie_below_those_that_the_system_hands_out() -> None:
    text = Path("/proc/sys/net/ipv4/ip_local_port_range").read_text()
    assert int(text.split()[0]) >= FIRST + COUNT


def test_a_failure_is_found_in_a_log_that_was_rotated_since(local: LocalWorld) -> None:
    d = local.deployment()
    log = (LOGS / "truncweights.log").read_text()
    assert len(log) > local.settings.engines.log_bytes
    local.steer(d, fail_log=str(LOGS / "truncweights.log"), exit_code=1)
    local.driver.start(local.order(d), fence(d))
    for _ in range(2):
        assert _exited(local, d).reason is Reason.BAD_WEIGHTS
    assert _folder(local, d).older_log.exists()
