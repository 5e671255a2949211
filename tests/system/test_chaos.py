"""Whatever dies, whenever: the same end state, exactly one engine, no acknowledged spec lost."""

from collections.abc import Callable

import pytest
from sqlalchemy import create_engine, text

from tests.system.machine import Machine, until
from tests.system.stores import Stores

pytestmark = pytest.mark.system


def _rows(machine: Machine, query: str) -> int:
    url = machine.database_url.replace("postgresql://", "postgresql+psycopg://", 1)
    engine = create_engine(url)
    try:
        with engine.connect() as connection:
            return int(connection.execute(text(query)).scalar_one())
    finally:
        engine.dispose()


MOMENTS: dict[str, Callable[[Machine], bool]] = {
    "the spec is stored": lambda m: True,
    "the lease is taken": lambda m: (
        _rows(m, "SELECT count(*) FROM deployment_status WHERE lease_token > 0") > 0
    ),
    "the replica is placed": lambda m: _rows(m, "SELECT count(*) FROM replicas") > 0,
    "its folder is there": lambda m: any((m.data / "replicas").glob("*/*")),
    "its process is there": lambda m: bool(m.engines()),
    "its route is set": lambda m: (
        _rows(m, "SELECT count(*) FROM replicas WHERE endpoint IS NOT NULL") > 0
    ),
    "it is ready": lambda m: m.get("hello")["status"]["phase"] == "ready",
}


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_worker_killed_once(machine: Machine, moment: str) -> None:
    model = machine.model("target", start_seconds=0.5)
    machine.deploy("hello", model)
    until(lambda: MOMENTS[moment](machine), moment, every=0.001)
    machine.kill("worker")
    machine.start("worker")
    machine.wait_phase("hello", "ready")
    assert len(machine.engines("hello")) == 1
    assert machine.ask("hello").status_code == 200


def test_a_worker_that_is_gone_for_a_while_finds_its_engine_again(machine: Machine) -> None:
    machine.deploy("hello", machine.model("target"))
    machine.wait_phase("hello", "ready")
    (engine,) = machine.engines()
    machine.kill("worker")
    assert machine.ask("hello").status_code == 200
    machine.start("worker")
    before = machine.get("hello")["status"]["since"]
    machine.http.post("/api/v1/deployments/hello/pause")
    machine.wait_phase("hello", "paused")
    assert not engine.is_running()
    assert machine.get("hello")["status"]["since"] > before


def test_two_workers_at_once_start_one_engine(machine: Machine) -> None:
    machine.start("worker-2")
    names = [f"d{n}" for n in range(3)]
    for name in names:
        machine.deploy(name, machine.model(name, start_seconds=0.3))
    machine.wait_phase("d0", "ready")
    for name in names:
        assert machine.ask(name).status_code == 200
        assert len(machine.engines()) == 1


def test_a_wiped_broker_costs_a_sweep_at_most(machine: Machine, stores: Stores) -> None:
    model = machine.model("target")
    machine.kill("worker")
    machine.deploy("hello", model)
    stores.flush_broker()
    machine.start("worker")
    machine.wait_phase("hello", "ready")
    stores.flush_broker()
    machine.http.post("/api/v1/deployments/hello/pause")
    stores.flush_broker()
    machine.wait_phase("hello", "paused")
    assert machine.engines() == []


def test_a_broker_that_dies_and_comes_back_changes_nothing(
    machine: Machine, stores: Stores
) -> None:
    machine.deploy("hello", machine.model("target"))
    machine.wait_phase("hello", "ready")
    (engine,) = machine.engines()
    stores.kill_broker()
    machine.http.post("/api/v1/deployments/hello/pause")
    machine.wait_phase("hello", "paused")
    stores.start()
    machine.http.post("/api/v1/deployments/hello/resume")
    machine.wait_phase("hello", "ready")
    (second,) = machine.engines()
    assert second.pid != engine.pid


def test_a_database_that_restarts_loses_no_spec_and_stops_no_engine(
    machine: Machine, stores: Stores
) -> None:
    machine.deploy("hello", machine.model("target", token_seconds=0.3, tokens=20))
    machine.wait_phase("hello", "ready")
    (engine,) = machine.engines()
    stream = machine.stream("hello")
    next(stream)
    stores.stop_database()
    assert machine.http.get("/api/v1/deployments/hello").status_code == 503
    rest = list(stream)
    assert rest[-1]["choices"][0]["finish_reason"] == "stop"
    assert machine.ask("hello", max_tokens=2).status_code == 200
    stores.start()
    until(
        lambda: machine.http.get("/api/v1/deployments/hello").status_code == 200,
        "the database again",
    )
    machine.wait_phase("hello", "ready")
    assert [p.pid for p in machine.engines()] == [engine.pid]
    machine.http.post("/api/v1/deployments/hello/pause")
    machine.wait_phase("hello", "paused")


def test_without_any_broker_the_work_is_done_all_the_same(machine: Machine) -> None:
    model = machine.model("target")
    for name in ("worker", "api"):
        machine.kill(name)
    machine.redis_url = f"unix://{machine.folder}/nobody.sock"
    machine.start("api", "worker")
    machine.wait_ready()
    machine.deploy("hello", model)
    machine.wait_phase("hello", "ready")
    assert len(machine.engines()) == 1


def test_an_api_and_a_gateway_killed_cut_no_engine_and_lose_no_spec(machine: Machine) -> None:
    machine.deploy("hello", machine.model("target"))
    machine.wait_phase("hello", "ready")
    (engine,) = machine.engines()
    for name in ("api", "gateway"):
        machine.kill(name)
        machine.start(name)
        machine.wait_ready()
        assert machine.ask("hello").status_code == 200
    assert [p.pid for p in machine.engines()] == [engine.pid]
    assert machine.get("hello")["status"]["phase"] == "ready"


def test_a_killed_engine_is_started_again_and_requests_are_held_meanwhile(machine: Machine) -> None:
    machine.deploy("hello", machine.model("target", start_seconds=0.3))
    machine.wait_phase("hello", "ready")
    (engine,) = machine.engines()
    engine.kill()
    engine.wait(10)
    answer = machine.ask("hello")
    assert answer.status_code == 200, answer.text
    machine.wait_phase("hello", "ready")
    (second,) = machine.engines()
    assert second.pid != engine.pid
    assert "degraded" in machine.phases("hello")
