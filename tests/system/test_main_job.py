"""The main job in seconds: the whole system with a stub engine, as a person would use it."""

import pytest

from tests.system.machine import ROOT, Machine, until

pytestmark = pytest.mark.system


def test_a_deployment_goes_from_yellow_to_green_sleeps_wakes_and_leaves_nothing(
    machine: Machine,
) -> None:
    model = machine.model("target", start_seconds=0.5)
    made = machine.deploy("hello", model, scale_down={"policy": "idle", "after": "2s"})
    assert (made["status"]["phase"], made["status"]["light"]) == ("queued", "yellow")

    ready = machine.wait_phase("hello", "ready")
    assert ready["status"]["light"] == "green"
    assert ready["observed_generation"] == ready["generation"] == 1
    assert ready["status"]["replicas"]["ready"] == 1
    (engine,) = machine.engines("hello")

    parts = list(machine.stream("hello"))
    assert "".join(p["choices"][0]["delta"].get("content") or "" for p in parts if p["choices"])

    machine.wait_phase("hello", "asleep")
    assert not engine.is_running()
    assert machine.engines() == []

    answer = machine.ask("hello")
    assert answer.status_code == 200, answer.text
    assert answer.json()["model"] == "hello"
    (woken,) = machine.engines("hello")
    assert woken.pid != engine.pid

    assert machine.http.delete("/api/v1/deployments/hello").status_code == 202
    until(lambda: machine.http.get("/api/v1/deployments/hello").status_code == 404, "deleted")
    assert machine.engines() == []
    assert not (machine.data / "replicas" / made["id"]).exists()
    phases = machine.phases(made["id"])
    assert phases[:2] == ["starting", "ready"]
    reasons = [e["reason"] for e in reversed(machine.events(made["id"]))]
    assert "WarmingUp" in reasons or "StartingEngine" in reasons
    assert phases[-2:] == ["stopping", "deleted"]
    assert [p for p in phases if p in {"draining", "asleep", "waking"}][:3] == [
        "draining", "asleep", "waking",
    ]  # fmt: skip
    machine.deploy("hello", model)
    machine.wait_phase("hello", "ready")
    own = {"data", "models", "api.log", "gateway.log", "worker.log"}
    assert {p.name for p in machine.folder.iterdir()} == own, "a file in the folder we run in"


def test_one_page_of_metrics_tells_what_every_process_knows(machine: Machine) -> None:
    machine.deploy("hello", machine.model("target"))
    machine.wait_phase("hello", "ready")
    assert machine.ask("hello").status_code == 200

    def page() -> str:
        return machine.http.get("/metrics").text

    until(lambda: 'slipstream_deployments{phase="ready"} 1.0' in page(), "the worker's count")
    counted = 'slipstream_gateway_requests_total{code="200",deployment="hello"}'
    assert counted in page()
    assert "slipstream_reconcile_seconds_count 0.0" not in page()


def test_a_stream_longer_than_the_idle_window_keeps_its_model_awake(machine: Machine) -> None:
    model = machine.model("slow", token_seconds=0.5, tokens=10)
    machine.deploy("slow", model, scale_down={"policy": "idle", "after": "1s"})
    machine.wait_phase("slow", "ready")
    seen = {machine.get("slow")["status"]["phase"] for _ in machine.stream("slow")}
    assert seen == {"ready"}
    machine.wait_phase("slow", "asleep")


def test_three_deployments_on_one_slot_called_in_turn_all_answer(machine: Machine) -> None:
    for name in ("one", "two", "three"):
        machine.deploy(name, machine.model(name))
    machine.wait_phase("one", "ready")
    waiting = until(
        lambda: (s := machine.get("two")["status"])["reason"] == "WaitingForGpu" and s,
        "two waits for the slot",
    )
    assert waiting["phase"] == "queued"
    assert "one" in waiting["message"]
    assert "slipstream wake two" in waiting["hint"]
    until(
        lambda: "WaitingForGpu" in [e["reason"] for e in machine.events("two")],
        "the wait is among the events",
    )
    for name in ("two", "three", "one", "three"):
        answer = machine.ask(name)
        assert answer.status_code == 200, answer.text
        assert len(machine.engines()) == 1


def test_a_paused_deployment_says_so_and_wakes_only_by_a_person(machine: Machine) -> None:
    machine.deploy("hello", machine.model("target"))
    machine.wait_phase("hello", "ready")
    for _ in range(2):
        assert machine.http.post("/api/v1/deployments/hello/pause").status_code == 202
    machine.wait_phase("hello", "paused")
    answer = machine.ask("hello")
    assert answer.status_code == 503
    assert answer.json()["error"]["code"] == "deployment_paused"
    assert "retry-after" not in answer.headers
    assert machine.engines() == []
    assert machine.http.post("/api/v1/deployments/hello/resume").status_code == 202
    machine.wait_phase("hello", "ready")


def test_an_edit_that_renders_another_engine_rolls_it_and_a_policy_edit_does_not(
    machine: Machine,
) -> None:
    machine.deploy("hello", machine.model("target"))
    machine.wait_phase("hello", "ready")
    (first,) = machine.engines("hello")
    edit = {"scale_down": {"policy": "never", "after": None}}
    assert machine.http.patch("/api/v1/deployments/hello", json=edit).status_code == 200
    until(lambda: machine.get("hello")["observed_generation"] == 2, "the policy edit observed")
    assert [p.pid for p in machine.engines("hello")] == [first.pid]
    edit = {"context_length": 1024}
    assert machine.http.patch("/api/v1/deployments/hello", json=edit).status_code == 200
    until(
        lambda: (
            [p.pid for p in machine.engines("hello")] not in ([], [first.pid])
            and machine.get("hello")["status"]["phase"] == "ready"
        ),
        "the new engine alone",
    )
    (second,) = machine.engines("hello")
    assert "--max-model-len=1024" in second.cmdline()
    assert machine.ask("hello").status_code == 200


CRASHES = [
    {"fail_log": "words.txt", "exit_code": 1},
    {"fail_log": "words.txt", "exit_code": 0},
    {"crash_after_seconds": 0.2, "crash_code": 0},
]


@pytest.mark.parametrize("behaviour", CRASHES)
def test_an_engine_that_crash_loops_never_stays_ready_and_frees_its_slot(
    machine: Machine, behaviour: dict[str, object]
) -> None:
    model = machine.model("bad", **behaviour)
    (machine.models / "bad" / "words.txt").write_text("the last words\n")
    machine.deploy("bad", model)
    failed = machine.wait_phase("bad", "failed", patience=60)
    assert failed["status"]["light"] == "red"
    assert failed["status"]["reason"] == "CrashLoop"
    assert failed["status"]["hint"]
    if "fail_log" in behaviour:
        assert "ready" not in machine.phases("bad")
    assert machine.engines() == []
    machine.deploy("good", machine.model("good"))
    machine.wait_phase("good", "ready")
    answer = machine.ask("bad")
    assert answer.status_code == 503
    assert "retry-after" not in answer.headers


def test_a_failure_that_only_a_person_can_mend_is_told_at_once(machine: Machine) -> None:
    model = machine.model("long", fail_log="words.txt", exit_code=1)
    words = (ROOT / "tests" / "domain" / "engine_logs" / "kvsmall.log").read_text()
    (machine.models / "long" / "words.txt").write_text(words)
    machine.deploy("long", model)
    status = machine.wait_phase("long", "failed")["status"]
    assert status["reason"] == "ContextTooLong"
    assert "1920" in status["message"] + status["hint"]
    assert len((machine.models / "long" / "starts.jsonl").read_text().splitlines()) == 1
    edit = {"context_length": 1920}
    behaviour = machine.models / "long" / "stub.json"
    behaviour.write_text("{}")
    assert machine.http.patch("/api/v1/deployments/long", json=edit).status_code == 200
    machine.wait_phase("long", "ready")
