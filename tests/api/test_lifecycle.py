from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import text

from controlplane.domain.deployment import DeploymentId, IntentKind
from controlplane.persistence import intents
from controlplane.services.site import Site

pytestmark = pytest.mark.system
PATH = "/api/v1/deployments/hello"
Deploy = Callable[..., dict[str, Any]]


def stands(site: Site, phase: str, *, reason: str | None = None, after_drain: str = "") -> None:
    """As if the reconciler had written it."""
    with site.begin() as session:
        session.execute(
            text(
                "UPDATE deployment_status SET phase = :phase, reason = :reason,"
                " detail = jsonb_build_object('after_drain', nullif(:drain, ''))"
            ),
            {"phase": phase, "reason": reason, "drain": after_drain},
        )


def wishes(site: Site) -> list[str]:
    with site.begin() as session:
        return list(session.execute(text("SELECT kind FROM intents ORDER BY number")).scalars())


def kinds(client: TestClient) -> list[str]:
    return [e["kind"] for e in client.get(f"{PATH}/events").json()["items"]]


def test_pausing_and_resuming_change_what_is_desired_and_not_the_generation(
    client: TestClient, deploy: Deploy
) -> None:
    deploy()
    for _ in range(2):
        paused = client.post(f"{PATH}/pause")
        assert paused.status_code == 202
        assert (paused.json()["desired"], paused.json()["generation"]) == ("paused", 1)
    for _ in range(2):
        resumed = client.post(f"{PATH}/resume")
        assert resumed.status_code == 202
        assert (resumed.json()["desired"], resumed.json()["generation"]) == ("running", 1)
    assert kinds(client) == ["resumed", "paused", "created"]


def test_sleep_is_asked_once_until_it_is_handled(
    client: TestClient, deploy: Deploy, site: Site
) -> None:
    made = deploy()
    stands(site, "ready")
    for _ in range(3):
        assert client.post(f"{PATH}/sleep").status_code == 202
    assert wishes(site) == ["sleep"]
    with site.begin() as session:
        asked = intents.newest(session, [made["id"]])[DeploymentId(made["id"])]
    assert asked.kind is IntentKind.SLEEP
    assert asked.expires_at is None


def test_a_wake_overrules_a_sleep_that_was_not_handled_yet(
    client: TestClient, deploy: Deploy, site: Site
) -> None:
    made = deploy()
    stands(site, "ready")
    client.post(f"{PATH}/sleep")
    client.post(f"{PATH}/wake")
    client.post(f"{PATH}/wake")
    assert wishes(site) == ["sleep", "wake"]
    with site.begin() as session:
        asked = intents.newest(session, [made["id"]])[DeploymentId(made["id"])]
    assert asked.expires_at is not None


@pytest.mark.parametrize("phase", ["queued", "starting", "waking", "ready", "updating", "degraded"])
def test_waking_what_is_up_or_coming_is_a_no_op(
    client: TestClient, deploy: Deploy, site: Site, phase: str
) -> None:
    deploy()
    stands(site, phase)
    assert client.post(f"{PATH}/wake").status_code == 202
    assert wishes(site) == []


@pytest.mark.parametrize(("phase", "after"), [("asleep", ""), ("draining", "asleep")])
def test_putting_a_sleeper_to_sleep_is_a_no_op_and_waking_it_is_not(
    client: TestClient, deploy: Deploy, site: Site, phase: str, after: str
) -> None:
    deploy()
    stands(site, phase, after_drain=after)
    assert client.post(f"{PATH}/sleep").status_code == 202
    assert wishes(site) == []
    assert client.post(f"{PATH}/wake").status_code == 202
    assert wishes(site) == ["wake"]


def test_an_expired_wake_is_asked_anew(client: TestClient, deploy: Deploy, site: Site) -> None:
    deploy()
    stands(site, "asleep")
    client.post(f"{PATH}/wake")
    with site.begin() as session:
        session.execute(text("UPDATE intents SET expires_at = now() - interval '1 second'"))
    client.post(f"{PATH}/wake")
    assert wishes(site) == ["wake", "wake"]


@pytest.mark.parametrize("word", ["sleep", "wake"])
def test_a_paused_one_neither_sleeps_nor_wakes(
    client: TestClient, deploy: Deploy, site: Site, word: str
) -> None:
    deploy()
    client.post(f"{PATH}/pause")
    refused = client.post(f"{PATH}/{word}")
    assert (refused.status_code, refused.json()["code"]) == (409, "deployment_paused")
    assert "resume" in refused.json()["hint"]
    assert wishes(site) == []


def test_a_failed_one_is_tried_again_by_resume_and_does_not_sleep(
    client: TestClient, deploy: Deploy, site: Site
) -> None:
    deploy()
    stands(site, "failed", reason="CrashLoop")
    refused = client.post(f"{PATH}/sleep")
    assert (refused.status_code, refused.json()["code"]) == (409, "deployment_failed")
    assert client.post(f"{PATH}/resume").status_code == 202
    assert wishes(site) == ["wake"]
    assert client.post(f"{PATH}/resume").status_code == 202
    assert wishes(site) == ["wake"]


def test_every_wish_is_hinted_and_recorded_with_who_asked(
    client: TestClient, deploy: Deploy, site: Site, hints: Any
) -> None:
    made = deploy()
    stands(site, "ready")
    for word in ("sleep", "wake", "pause", "resume"):
        client.post(f"{PATH}/{word}")
    client.delete(PATH)
    assert hints.sent == [made["id"]] * 6
    events = client.get(f"{PATH}/events").json()["items"]
    assert [e["kind"] for e in events] == [
        "delete_asked",
        "resumed",
        "paused",
        "wake_asked",
        "sleep_asked",
        "created",
    ]
    assert {e["actor"] for e in events} == {"key:admin"}
    numbers = [e["number"] for e in events]
    assert numbers == sorted(numbers, reverse=True)


def test_events_come_in_pages_newest_first(client: TestClient, deploy: Deploy) -> None:
    deploy()
    for _ in range(3):
        client.post(f"{PATH}/pause")
        client.post(f"{PATH}/resume")
    found, cursor = [], None
    while True:
        params = {"limit": "3"} | ({"cursor": cursor} if cursor else {})
        page = client.get(f"{PATH}/events", params=params).json()
        found += [e["number"] for e in page["items"]]
        cursor = page["next_cursor"]
        if cursor is None:
            break
    assert len(found) == 7
    assert found == sorted(set(found), reverse=True)
    wrong = client.get(f"{PATH}/events", params={"cursor": "bnVsbA"})
    assert (wrong.status_code, wrong.json()["code"]) == (422, "invalid_cursor")


@pytest.mark.parametrize(
    ("phase", "reason", "light"),
    [
        ("queued", "WaitingForGpu", "yellow"),
        ("ready", None, "green"),
        ("degraded", None, "orange"),
        ("asleep", "IdlePolicy", "grey"),
        ("paused", "PausedByPerson", "grey"),
        ("failed", "CrashLoop", "red"),
        ("ready", "DriverUnreachable", "orange"),
        ("asleep", "DriverUnreachable", "orange"),
    ],
)
def test_the_light_is_the_phase_s_and_orange_while_nobody_can_tell(
    client: TestClient, deploy: Deploy, site: Site, phase: str, reason: str | None, light: str
) -> None:
    deploy()
    stands(site, phase, reason=reason)
    status = client.get(PATH).json()["status"]
    assert (status["phase"], status["reason"], status["light"]) == (phase, reason, light)
