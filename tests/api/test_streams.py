from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from fastapi import FastAPI
from sqlalchemy import text

from controlplane.domain.deployment import DeploymentId
from controlplane.paths import DataDir
from controlplane.persistence.changes import announce
from controlplane.services.site import Site
from tests.api.conftest import SPEC

pytestmark = pytest.mark.system
API = "/api/v1"
HELLO = f"{API}/deployments/hello"


class Events:
    """Server-sent events of one open answer, read as they come."""

    def __init__(self, answer: httpx2.Response) -> None:
        assert answer.status_code == 200, answer.read()
        assert answer.headers["content-type"].startswith("text/event-stream")
        self._lines = answer.iter_lines()

    def __iter__(self) -> Iterator[tuple[str, Any]]:
        name = ""
        for line in self._lines:
            if line.startswith("event: "):
                name = line.removeprefix("event: ")
            if line.startswith("data: "):
                yield name, json.loads(line.removeprefix("data: "))

    def until(self, wanted: Callable[[str, Any], bool]) -> Any:
        """The data of the first event that is `wanted`; the client's timeout is the deadline."""
        for name, data in self:
            if wanted(name, data):
                return data
        raise AssertionError("the stream ended before")


def is_phase(phase: str) -> Callable[[str, Any], bool]:
    return lambda name, data: name == "deployment" and data["status"]["phase"] == phase


def set_phase(site: Site, phase: str) -> None:
    """As the reconciler writes it."""
    with site.begin() as session:
        ids = session.execute(
            text(
                "UPDATE deployment_status SET phase = :phase, updated_at = clock_timestamp()"
                " RETURNING deployment_id"
            ),
            {"phase": phase},
        ).scalars()
        for deployment_id in ids.all():
            announce(session, deployment_id)


def test_the_stream_begins_with_everything_and_goes_on_with_each_change(
    live: httpx2.Client, site: Site
) -> None:
    live.post(f"{API}/deployments", json=SPEC)
    with live.stream("GET", f"{API}/stream") as answer:
        events = Events(answer)
        first = events.until(lambda name, data: name == "snapshot" and data["as_of"] is not None)
        assert [d["name"] for d in first["items"]] == ["hello"]
        set_phase(site, "starting")
        changed = events.until(is_phase("starting"))
        assert changed == live.get(HELLO).json()
        live.post(f"{API}/deployments", json={**SPEC, "name": "second"})
        made = events.until(lambda name, data: name == "deployment" and data["name"] == "second")
        assert made["spec"]["model"] == SPEC["model"]
        set_phase(site, "stopping")
        set_phase(site, "deleted")
        assert events.until(is_phase("deleted"))["status"]["light"] == "none"


def test_a_stream_shows_a_workspace_s_own_changes_only(live: httpx2.Client, site: Site) -> None:
    with site.begin() as session:
        session.execute(text("INSERT INTO workspaces (id) VALUES ('other')"))
    with live.stream("GET", f"{API}/stream") as answer:
        events = Events(answer)
        events.until(lambda name, data: name == "snapshot" and data["as_of"] is not None)
        live.post(f"{API}/deployments", json={**SPEC, "name": "theirs"})
        events.until(lambda name, data: name == "deployment" and data["name"] == "theirs")
        with site.begin() as session:
            session.execute(text("UPDATE deployments SET workspace = 'other'"))
        set_phase(site, "starting")
        live.post(f"{API}/deployments", json={**SPEC, "name": "ours"})
        name, data = next(e for e in events if e[0] == "deployment")
        assert (name, data["name"]) == ("deployment", "ours")


def test_after_the_listening_connection_was_lost_a_fresh_snapshot_comes(
    live: httpx2.Client, site: Site
) -> None:
    with live.stream("GET", f"{API}/stream") as answer:
        events = Events(answer)
        events.until(lambda name, data: name == "snapshot" and data["as_of"] is not None)
        with site.begin() as session:
            killed = session.execute(
                text(
                    "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity"
                    " WHERE application_name = 'slipstream-api-listen'"
                    " AND datname = current_database()"
                )
            ).scalar_one()
        assert killed == 1
        live.post(f"{API}/deployments", json=SPEC)
        events.until(
            lambda name, data: (
                name == "snapshot"
                and data["as_of"] is not None
                and [d["name"] for d in data["items"]] == ["hello"]
            )
        )


def test_many_readers_share_one_listening_connection(live: httpx2.Client, site: Site) -> None:
    with live.stream("GET", f"{API}/stream") as one, live.stream("GET", f"{API}/stream") as two:
        for answer in (one, two):
            Events(answer).until(lambda name, data: name == "snapshot" and bool(data["as_of"]))
        with site.begin() as session:
            listening = session.execute(
                text(
                    "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
                    " AND application_name = 'slipstream-api-listen'"
                )
            ).scalar_one()
    assert listening == 1


def test_streams_end_when_the_process_is_told_to_end(
    live: httpx2.Client, app: FastAPI, stop: Callable[[], None]
) -> None:
    live.post(f"{API}/deployments", json=SPEC)
    with (
        live.stream("GET", f"{API}/stream") as changes,
        live.stream("GET", f"{HELLO}/logs", params={"follow": "true"}) as logs,
    ):
        events = Events(changes)
        events.until(lambda name, _: name == "snapshot")
        stop()
        assert all(name in {"snapshot", "deployment", "alive"} for name, _ in events)
        assert list(Events(logs)) == []


def replica_log(site: Site, deployment_id: str, slot: int = 0, digest: str = "abc") -> Path:
    folder = DataDir(site.settings.data_dir).replica(DeploymentId(deployment_id), slot, digest)
    folder.mkdir(parents=True)
    return folder / "engine.log"


def append(log: Path, *lines: str) -> None:
    with log.open("a") as out:
        out.writelines(f"{line}\n" for line in lines)


def test_the_last_lines_of_a_log_come_with_their_replica(live: httpx2.Client, site: Site) -> None:
    made = live.post(f"{API}/deployments", json=SPEC).json()
    assert live.get(f"{HELLO}/logs").json() == {"items": [], "next_cursor": None}
    log = replica_log(site, made["id"])
    append(log, *(f"line {n}" for n in range(50)), "\x1b[32mINFO\x1b[0m 10%\r20%\rdone\x07 ü")
    log.with_name("engine.log.1").write_text("older\n")
    items = live.get(f"{HELLO}/logs", params={"lines": "2"}).json()["items"]
    assert items == [
        {"source": "0-abc", "text": "line 49"},
        {"source": "0-abc", "text": "done ü"},
    ]
    texts = [i["text"] for i in live.get(f"{HELLO}/logs").json()["items"]]
    assert (len(texts), texts[0]) == (52, "older")


def test_while_weights_are_fetched_the_downloads_log_is_shown(
    live: httpx2.Client, site: Site
) -> None:
    live.post(f"{API}/deployments", json={**SPEC, "model": "org/name", "revision": "v1"})
    folder = DataDir(site.settings.data_dir).download("org/name", "v1")
    folder.mkdir(parents=True)
    append(folder / "download.log", "fetching")
    assert live.get(f"{HELLO}/logs").json()["items"] == [{"source": "download", "text": "fetching"}]


def lines_until(events: Events, last: str) -> list[str]:
    found = []
    for name, data in events:
        assert name == "line"
        found.append(data["text"])
        if data["text"] == last:
            return found
    raise AssertionError(f"the stream ended after {found}")


def test_a_followed_log_goes_on_through_rotations_and_new_replicas(
    live: httpx2.Client, site: Site
) -> None:
    made = live.post(f"{API}/deployments", json=SPEC).json()
    log = replica_log(site, made["id"])
    append(log, "one", "two", "three")
    with live.stream("GET", f"{HELLO}/logs", params={"follow": "true", "lines": "2"}) as answer:
        events = Events(answer)
        assert lines_until(events, "three") == ["two", "three"]
        append(log, "four")
        assert lines_until(events, "four") == ["four"]
        append(log, "before the move")
        os.rename(log, log.with_name("engine.log.1"))
        append(log, "after the move")
        assert lines_until(events, "after the move") == ["before the move", "after the move"]
        append(log, "before the copy")
        log.with_name("engine.log.1").write_bytes(log.read_bytes())
        os.truncate(log, 0)
        append(log, "x")
        assert lines_until(events, "x") == ["before the copy", "x"]
        append(replica_log(site, made["id"], 1, "def"), "another replica")
        assert lines_until(events, "another replica") == ["another replica"]


def test_a_followed_log_begins_before_there_is_one(live: httpx2.Client, site: Site) -> None:
    made = live.post(f"{API}/deployments", json=SPEC).json()
    with live.stream("GET", f"{HELLO}/logs", params={"follow": "true"}) as answer:
        events = Events(answer)
        append(replica_log(site, made["id"]), "first words")
        assert lines_until(events, "first words") == ["first words"]
