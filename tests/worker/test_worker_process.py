"""A worker over a real broker: whatever the broker loses, doubles or makes up."""

from __future__ import annotations

import base64
import json
import signal
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import redis

from controlplane.domain.phases import Phase
from controlplane.hints import QUEUE, Hints
from controlplane.settings import Settings, Stores
from tests.worker.desk import Desk
from tests.worker.process import WorkerProcess, until

pytestmark = pytest.mark.system
Begin = Callable[..., WorkerProcess]


@pytest.fixture
def begin(desk: Desk, tmp_path: Path) -> Iterator[Begin]:
    begun: list[WorkerProcess] = []

    def start(name: str = "worker", settings: Settings | None = None, **more: str) -> WorkerProcess:
        worker = WorkerProcess(settings or desk.settings, tmp_path, name, **more)
        begun.append(worker)
        return worker

    yield start
    for worker in begun:
        worker.close()


@pytest.fixture
def broker(desk: Desk) -> Iterator[redis.Redis]:
    assert desk.settings.stores.redis_url
    client = redis.Redis.from_url(desk.settings.stores.redis_url)
    yield client
    client.close()


def _works(desk: Desk) -> Callable[[], bool]:
    return lambda: desk.sql("SELECT count(*) FROM workers") > 0


def _is(desk: Desk, d: str, phase: Phase) -> Callable[[], bool]:
    return lambda: desk.phase(d) is phase


def _message(task: str, args: object) -> str:
    body = base64.b64encode(json.dumps([args, {}, {}]).encode()).decode()
    return json.dumps(
        {
            "body": body,
            "content-encoding": "utf-8",
            "content-type": "application/json",
            "headers": {"lang": "py", "task": task, "id": "x"},
            "properties": {
                "correlation_id": "x",
                "delivery_mode": 2,
                "delivery_info": {"exchange": "", "routing_key": QUEUE},
                "body_encoding": "base64",
                "delivery_tag": "x",
            },
        }
    )


def test_a_hint_is_worked_on_and_a_doubled_one_changes_nothing(desk: Desk, begin: Begin) -> None:
    begin(SLIPSTREAM_SWEEP_SECONDS="600")
    until(_works(desk), "a worker")
    hints = Hints(desk.settings)
    d = desk.deploy("hello")
    for _ in range(5):
        assert hints.send(d)
    until(_is(desk, d, Phase.READY), "ready")
    hints.close()
    assert len(desk.rows()) == 1


GARBAGE = {
    "an unknown task": _message("slipstream.nonsense", []),
    "wrong arguments": _message("slipstream.reconcile", [1, 2, 3]),
    "no id at all": _message("slipstream.reconcile", [{"a": "b"}]),
    "an id of nobody": _message("slipstream.reconcile", ["dep_NOBODY"]),
    "another type": _message("slipstream.reconcile", []).replace(
        "application/json", "application/x-python-serialize"
    ),
    "a body that is none": _message("slipstream.reconcile", []).replace('"body": "', '"body": "!'),
    "no JSON": "\x00not json",
    "JSON of another form": "[1, 2]",
}


def test_garbage_in_the_queue_stops_nothing(desk: Desk, begin: Begin, broker: redis.Redis) -> None:
    worker = begin()
    until(_works(desk), "a worker")
    for what in GARBAGE.values():
        broker.lpush(QUEUE, what)
    until(lambda: broker.llen(QUEUE) == 0, "an empty queue")
    d = desk.deploy("hello")
    hints = Hints(desk.settings)
    hints.reconcile(d)
    hints.close()
    until(_is(desk, d, Phase.READY), "ready")
    assert worker.lives(), worker.text()[-3000:]


def test_without_a_single_hint_the_sweep_does_it(desk: Desk, begin: Begin) -> None:
    begin()
    until(_works(desk), "a worker")
    d = desk.deploy("hello")
    until(_is(desk, d, Phase.READY), "ready")


def test_with_a_dead_broker_everything_goes_on_and_sigterm_ends_it(
    desk: Desk, begin: Begin, tmp_path: Path
) -> None:
    nobody = Stores(desk.settings.stores.database_url, f"unix://{tmp_path}/nobody.sock")
    worker = begin(settings=replace(desk.settings, stores=nobody))
    until(_works(desk), "a worker")
    d = desk.deploy("hello")
    until(_is(desk, d, Phase.READY), "ready")
    assert worker.end(signal.SIGTERM) == 0, worker.text()[-3000:]


def test_a_wiped_broker_is_used_again(desk: Desk, begin: Begin, broker: redis.Redis) -> None:
    worker = begin()
    until(_works(desk), "a worker")
    broker.flushall()
    broker.client_kill_filter(_type="normal", skipme=True)
    d = desk.deploy("hello")
    until(_is(desk, d, Phase.READY), "ready")
    assert worker.lives()


def test_a_killed_workers_leases_cost_no_more_than_its_restart(desk: Desk, begin: Begin) -> None:
    worker = begin()
    until(_works(desk), "a worker")
    owner = desk.sql("SELECT id FROM workers")
    d = desk.deploy("hello")
    worker.end(signal.SIGKILL)
    desk.sql(
        "UPDATE deployment_status SET lease_owner = :o, phase = 'queued',"
        " lease_until = now() + interval '1 hour' RETURNING 1",
        o=owner,
    )
    worker.restart()
    until(_is(desk, d, Phase.READY), "ready")
    assert desk.sql("SELECT count(*) FROM workers") == 1


def test_two_workers_have_names_of_their_own_and_sigterm_leaves_no_row(
    desk: Desk, begin: Begin
) -> None:
    both = [begin("a"), begin("b")]
    until(lambda: desk.sql("SELECT count(*) FROM workers") == 2, "two workers")
    assert [w.end(signal.SIGTERM) for w in both] == [0, 0], both[0].text()[-2000:]
    assert desk.sql("SELECT count(*) FROM workers") == 0
    assert desk.sql("SELECT count(*) FROM deployment_status WHERE lease_owner IS NOT NULL") == 0


@pytest.mark.parametrize(
    ("variable", "value", "word"),
    [
        ("SLIPSTREAM_VISIBILITY_TIMEOUT", "5", "LEASE"),
        ("SLIPSTREAM_RECONCILE_DEADLINE", "60", "DEADLINE"),
        ("SLIPSTREAM_DRIVER", "kubernetes", "kubernetes"),
    ],
)
def test_settings_that_cannot_work_end_it_with_one_sentence(
    begin: Begin, variable: str, value: str, word: str
) -> None:
    worker = begin(**{variable: value})
    assert worker.process.wait(timeout=60) == 1
    text = worker.text().strip()
    assert word in text
    assert "Traceback" not in text


def test_a_broker_that_evicts_is_refused(begin: Begin, broker: redis.Redis) -> None:
    broker.config_set("maxmemory-policy", "allkeys-lru")
    try:
        worker = begin()
        assert worker.process.wait(timeout=60) == 1
    finally:
        broker.config_set("maxmemory-policy", "noeviction")
    assert "noeviction" in worker.text()
