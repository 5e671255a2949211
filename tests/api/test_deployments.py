from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import text
from starlette.testclient import TestClient

from controlplane.services.site import Site
from tests.api.conftest import SPEC, Hints

pytestmark = pytest.mark.system
PATH = "/api/v1/deployments"
Deploy = Callable[..., dict[str, Any]]
NAMES = ["true", "on", "no", "0777", "1e3", "null", "7b-v0.1", "0x1f", "1.0", "2026-12-01"]


def test_a_deployment_is_accepted_as_queued_and_hinted_after_the_commit(
    client: TestClient, hints: Hints
) -> None:
    made = client.post(PATH, json=SPEC)
    body = made.json()
    assert made.status_code == 201
    assert made.headers["Location"] == f"{PATH}/hello"
    assert made.headers["ETag"] == '"1"'
    assert body["id"].startswith("dep_")
    assert body["status"]["phase"] == "queued"
    assert body["status"]["light"] == "yellow"
    assert (body["generation"], body["observed_generation"]) == (1, 0)
    assert body["desired"] == "running"
    assert body["created_at"].endswith("Z")
    assert hints.sent == [body["id"]]
    assert client.get(made.headers["Location"]).json() == body
    assert client.get(f"{PATH}/{body['id']}").json() == body


def test_defaults_are_filled_in_and_the_tier_is_the_one_that_was_found(deploy: Deploy) -> None:
    spec = deploy()["spec"]
    assert spec["tier"] == "cpu"
    assert spec["speculation"] == {
        "method": "auto",
        "tokens": "auto",
        "vocabulary": "same",
        "workload": None,
    }
    assert spec["scale_down"] == {"policy": "idle", "after": "1h"}
    assert spec["wake"] == {"mode": "hold", "deadline": "15m", "max_waiting": 100}
    assert spec["replicas"] == {"min": 1, "max": 1}
    assert spec["engine"] == {"version": None, "args": {}}
    assert spec["labels"] == {}


def test_the_hubs_page_address_names_the_model(deploy: Deploy) -> None:
    made = deploy(model="https://huggingface.co/Qwen/Qwen2.5-7B-Instruct-AWQ")
    assert made["spec"]["model"] == "Qwen/Qwen2.5-7B-Instruct-AWQ"


@pytest.mark.parametrize("name", NAMES)
def test_names_that_look_like_other_types_come_back_as_the_strings_they_are(
    client: TestClient, deploy: Deploy, name: str
) -> None:
    assert deploy(name)["name"] == name
    assert client.get(f"{PATH}/{name}").json()["spec"]["name"] == name
    assert [d["name"] for d in client.get(PATH).json()["items"]] == [name]


def test_a_taken_name_is_a_conflict_with_a_way_out(client: TestClient, deploy: Deploy) -> None:
    deploy()
    again = client.post(PATH, json=SPEC)
    assert again.status_code == 409
    assert again.json()["code"] == "name_taken"
    assert again.json()["hint"]


def test_a_name_is_free_again_once_its_deployment_is_gone(
    client: TestClient, deploy: Deploy, site: Site
) -> None:
    old = deploy()
    client.delete(f"{PATH}/hello")
    blocked = client.post(PATH, json=SPEC)
    assert "still being deleted" in blocked.json()["detail"]
    with site.begin() as session:
        session.execute(text("UPDATE deployments SET released_at = now()"))
        session.execute(text("UPDATE deployment_status SET phase = 'deleted'"))
    assert client.get(f"{PATH}/hello").status_code == 404
    assert deploy()["id"] != old["id"]
    assert client.get(f"{PATH}/{old['id']}").json()["status"]["phase"] == "deleted"
    assert len(client.get(PATH).json()["items"]) == 1
    assert [d["id"] for d in client.get(PATH, params={"phase": "deleted"}).json()["items"]] == [
        old["id"]
    ]


def test_a_tier_that_nothing_here_serves_is_refused_with_the_choices(client: TestClient) -> None:
    refused = client.post(PATH, json={**SPEC, "tier": "low-cost"})
    assert refused.status_code == 409
    assert refused.json()["code"] == "tier_not_here"
    assert "H200" in refused.json()["detail"]
    assert refused.json()["hint"] == "Choose one of: cpu."
    assert client.get(PATH).json()["items"] == []


def test_a_repeated_post_with_its_idempotency_key_makes_nothing_new(
    client: TestClient, hints: Hints
) -> None:
    headers = {"Idempotency-Key": "try-1"}
    first = client.post(PATH, json=SPEC, headers=headers)
    again = client.post(PATH, json=dict(reversed(SPEC.items())), headers=headers)
    assert (first.status_code, again.status_code) == (201, 201)
    assert again.json() == first.json()
    assert again.headers["Location"] == first.headers["Location"]
    other = client.post(PATH, json={**SPEC, "name": "other"}, headers=headers)
    assert other.status_code == 409
    assert other.json()["code"] == "idempotency_key_reused"
    assert len(client.get(PATH).json()["items"]) == 1
    assert hints.sent == [first.json()["id"]]


def test_a_refused_post_does_not_use_up_its_idempotency_key(client: TestClient) -> None:
    headers = {"Idempotency-Key": "try-2"}
    assert client.post(PATH, json={**SPEC, "tier": "none"}, headers=headers).status_code == 422
    assert client.post(PATH, json=SPEC, headers=headers).status_code == 201


def test_an_idempotency_key_is_free_again_after_its_day(client: TestClient, site: Site) -> None:
    headers = {"Idempotency-Key": "try-3"}
    client.post(PATH, json=SPEC, headers=headers)
    with site.begin() as session:
        session.execute(
            text("UPDATE idempotency_keys SET created_at = now() - interval '25 hours'")
        )
    later = client.post(PATH, json={**SPEC, "name": "later"}, headers=headers)
    assert later.status_code == 201


def test_two_posts_at_once_with_one_idempotency_key_make_one_deployment(
    client: TestClient,
) -> None:
    answers = at_once(
        8, lambda _: client.post(PATH, json=SPEC, headers={"Idempotency-Key": "race"})
    )
    assert {a.status_code for a in answers} == {201}
    assert len({a.json()["id"] for a in answers}) == 1
    assert len(client.get(PATH).json()["items"]) == 1


def test_posts_at_once_for_one_name_make_one_deployment(client: TestClient) -> None:
    answers = at_once(6, lambda _: client.post(PATH, json=SPEC))
    assert sorted(a.status_code for a in answers) == [201, 409, 409, 409, 409, 409]


def test_pages_neither_repeat_nor_skip_under_equal_timestamps(
    client: TestClient, deploy: Deploy, site: Site
) -> None:
    made = {deploy(f"n{number}")["id"] for number in range(7)}
    with site.begin() as session:
        session.execute(text("UPDATE deployments SET created_at = '2026-12-01T00:00:00Z'"))
    found, cursor = [], None
    while True:
        params = {"limit": "2"} | ({"cursor": cursor} if cursor else {})
        page = client.get(PATH, params=params).json()
        assert len(page["items"]) <= 2
        found += [d["id"] for d in page["items"]]
        cursor = page["next_cursor"]
        if len(found) == 4:
            deploy("newcomer")  # newer than all: it must not move the pages that follow
        if cursor is None:
            break
    assert len(found) == 7
    assert set(found) == made


@pytest.mark.parametrize(
    ("params", "names"),
    [
        ({}, ["b-two", "a-two", "a-one"]),
        ({"name": "a-"}, ["a-two", "a-one"]),
        ({"name": "a_"}, []),
        ({"label": "team=blue"}, ["a-two", "a-one"]),
        ({"label": ["team=blue", "night"]}, ["a-two"]),
        ({"label": "team"}, ["b-two", "a-two", "a-one"]),
        ({"model": "demo/smollm2-135m"}, ["a-two", "a-one"]),
        ({"model": "https://huggingface.co/Qwen/Qwen2.5-7B"}, ["b-two"]),
        ({"tier": "cpu"}, ["b-two", "a-two", "a-one"]),
        ({"tier": "low-cost"}, []),
        ({"phase": "queued"}, ["b-two", "a-two", "a-one"]),
        ({"phase": ["ready", "asleep"]}, []),
        ({"desired": "paused"}, ["a-one"]),
        ({"desired": "running", "name": "a"}, ["a-two"]),
    ],
)
def test_a_list_is_narrowed_by_its_filters(
    client: TestClient, deploy: Deploy, params: dict[str, Any], names: list[str]
) -> None:
    deploy("a-one", labels={"team": "blue"})
    deploy("a-two", labels={"team": "blue", "night": ""})
    deploy("b-two", labels={"team": "red"}, model="Qwen/Qwen2.5-7B")
    client.post(f"{PATH}/a-one/pause")
    assert [d["name"] for d in client.get(PATH, params=params).json()["items"]] == names


def test_a_change_raises_the_generation_and_null_brings_the_default_back(
    client: TestClient, deploy: Deploy, hints: Hints
) -> None:
    deploy(labels={"team": "blue", "night": "yes"}, context_length=512)
    patch = {"context_length": None, "labels": {"night": None}, "wake": {"max_waiting": 7}}
    changed = client.patch(f"{PATH}/hello", json=patch)
    assert changed.status_code == 200
    assert changed.headers["ETag"] == '"2"'
    spec = changed.json()["spec"]
    assert spec["context_length"] is None
    assert spec["labels"] == {"team": "blue"}
    assert spec["wake"] == {"mode": "hold", "deadline": "15m", "max_waiting": 7}
    assert changed.json()["generation"] == 2
    assert len(hints.sent) == 2


def test_a_change_that_changes_nothing_keeps_the_generation(
    client: TestClient, deploy: Deploy, hints: Hints
) -> None:
    before = deploy()
    same = client.patch(f"{PATH}/hello", json={"labels": {}, "name": "hello", "tier": None})
    assert same.status_code == 200
    assert same.json() == before
    assert len(hints.sent) == 1


@pytest.mark.parametrize(
    ("patch", "scale_down", "replicas"),
    [
        ({"scale_down": {"policy": "never"}}, {"policy": "never", "after": None}, 1),
        ({"scale_down": {"policy": "timer"}}, {"policy": "timer", "after": "2h"}, 1),
        ({"replicas": {"min": 3}}, {"policy": "idle", "after": "2h"}, 3),
    ],
)
def test_what_only_the_old_value_needed_goes_with_it(
    client: TestClient,
    deploy: Deploy,
    patch: dict[str, Any],
    scale_down: dict[str, Any],
    replicas: int,
) -> None:
    deploy(scale_down={"policy": "idle", "after": "2h"})
    spec = client.patch(f"{PATH}/hello", json=patch).json()["spec"]
    assert spec["scale_down"] == scale_down
    assert spec["replicas"] == {"min": replicas, "max": replicas}


@pytest.mark.parametrize(
    ("patch", "path"),
    [
        ({"name": "other"}, "name"),
        ({"model": None}, "model"),
        ({"model": "demo/none"}, "model"),
        ({"tier": "none"}, "tier"),
        ({"colour": "red"}, "colour"),
        ({"wake": {"deadline": "0s"}}, "wake.deadline"),
        ({"engine": {"version": "9.9.9"}}, "engine.version"),
        ({"speculation": {"method": "suffix"}}, "speculation.method"),
    ],
)
def test_a_wrong_change_is_refused_and_changes_nothing(
    client: TestClient, deploy: Deploy, patch: dict[str, Any], path: str
) -> None:
    before = deploy()
    refused = client.patch(f"{PATH}/hello", json=patch)
    assert refused.status_code == 422
    assert path in [e["path"] for e in refused.json()["errors"]]
    assert client.get(f"{PATH}/hello").json() == before


def test_a_patch_that_is_no_object_is_refused(client: TestClient, deploy: Deploy) -> None:
    deploy()
    assert client.patch(f"{PATH}/hello", json=[1]).json()["code"] == "invalid_patch"


def test_a_stale_if_match_changes_nothing(client: TestClient, deploy: Deploy) -> None:
    deploy()
    assert patch_label(client, "1", "a").status_code == 200
    stale = patch_label(client, "1", "b")
    assert stale.status_code == 412
    assert stale.json()["code"] == "stale_generation"
    assert stale.json()["hint"]
    assert client.get(f"{PATH}/hello").json()["spec"]["labels"] == {"by": "a"}


def test_of_changes_at_once_for_one_generation_one_wins(client: TestClient, deploy: Deploy) -> None:
    deploy()
    answers = at_once(6, lambda n: patch_label(client, "1", f"writer-{n}"))
    assert sorted(a.status_code for a in answers) == [200, 412, 412, 412, 412, 412]
    won = next(a for a in answers if a.status_code == 200).json()
    assert client.get(f"{PATH}/hello").json() == won
    assert won["generation"] == 2


def test_deleting_is_asked_once_and_repeating_it_is_a_no_op(
    client: TestClient, deploy: Deploy
) -> None:
    deploy()
    first = client.delete(f"{PATH}/hello")
    assert first.status_code == 202
    assert first.json()["desired"] == "deleted"
    assert first.json()["generation"] == 1
    assert client.delete(f"{PATH}/hello").status_code == 202
    kinds = [e["kind"] for e in client.get(f"{PATH}/hello/events").json()["items"]]
    assert kinds == ["delete_asked", "created"]


@pytest.mark.parametrize("word", ["pause", "resume", "sleep", "wake"])
def test_what_is_being_deleted_takes_no_other_wish(
    client: TestClient, deploy: Deploy, word: str
) -> None:
    deploy()
    client.delete(f"{PATH}/hello")
    refused = client.post(f"{PATH}/hello/{word}")
    assert (refused.status_code, refused.json()["code"]) == (409, "being_deleted")
    patched = client.patch(f"{PATH}/hello", json={"labels": {"a": "b"}})
    assert (patched.status_code, patched.json()["code"]) == (409, "being_deleted")


def test_a_bad_row_hides_no_other_deployment(
    client: TestClient, deploy: Deploy, site: Site
) -> None:
    deploy("good")
    deploy("bad")
    with site.begin() as session:
        session.execute(
            text("UPDATE deployments SET spec = spec || '{\"old_field\": 1}' WHERE name = 'bad'")
        )
    client.event_hooks = {}  # the bad row's spec is shown as it is, outside of any schema
    assert [d["name"] for d in client.get(PATH).json()["items"]] == ["bad", "good"]
    assert client.delete(f"{PATH}/bad").status_code == 202


def patch_label(client: TestClient, generation: str, value: str) -> Any:
    return client.patch(
        f"{PATH}/hello",
        json={"labels": {"by": value}},
        headers={"If-Match": f'"{generation}"'},
    )


def at_once(count: int, call: Callable[[int], Any]) -> list[Any]:
    """The answers of `count` calls that start together."""
    start, answers = threading.Barrier(count), []

    def run(number: int) -> None:
        start.wait(10)
        answers.append(call(number))

    threads = [threading.Thread(target=run, args=(n,)) for n in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert len(answers) == count
    return answers
