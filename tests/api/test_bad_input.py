from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest
from fastapi.testclient import TestClient

from tests.api.conftest import SPEC

pytestmark = pytest.mark.system
PATH = "/api/v1/deployments"


def nothing_was_made(one_client: TestClient) -> bool:
    listed: list[Any] = one_client.get(PATH).json()["items"]
    return listed == []


@pytest.mark.parametrize(
    ("fields", "path"),
    [
        ({"name": "A"}, "name"),
        ({"name": "x"}, "name"),
        ({"name": "x" * 41}, "name"),
        ({"name": "-ab"}, "name"),
        ({"name": "a b"}, "name"),
        ({"name": "ab\n"}, "name"),
        ({"name": "{{7*7}}"}, "name"),
        ({"name": "../../etc"}, "name"),
        ({"name": "x" * 10_000}, "name"),
        ({"name": True}, "name"),
        ({"name": 777}, "name"),
        ({"name": None}, "name"),
        ({"name": ["ab"]}, "name"),
        ({"model": "plain"}, "model"),
        ({"model": "https://example.com/org/name"}, "model"),
        ({"model": "http://169.254.169.254/latest/meta-data"}, "model"),
        ({"model": "org/../name"}, "model"),
        ({"model": "../etc/passwd"}, "model"),
        ({"model": "org/$(HF_TOKEN)"}, "model"),
        ({"model": "org/na\x07me"}, "model"),
        ({"model": "org/" + "x" * 10_000}, "model"),
        ({"model": "demo/unknown"}, "model"),
        ({"model": "local/unregistered"}, "model"),
        ({"model": 5}, "model"),
        ({"draft_model": SPEC["model"]}, "draft_model"),
        ({"draft_model": "local/none"}, "draft_model"),
        ({"tier": "no-such-tier"}, "tier"),
        ({"tier": "../tier"}, "tier"),
        ({"tier": 1}, "tier"),
        ({"scale_down": {"after": "0s"}}, "scale_down.after"),
        ({"scale_down": {"after": "-5m"}}, "scale_down.after"),
        ({"scale_down": {"after": "999999999d"}}, "scale_down.after"),
        ({"scale_down": {"after": "1 h"}}, "scale_down.after"),
        ({"scale_down": {"after": 3600}}, "scale_down.after"),
        ({"scale_down": {"policy": "sometimes"}}, "scale_down.policy"),
        ({"scale_down": {"policy": "never", "after": "1h"}}, "scale_down.after"),
        ({"scale_down": "never"}, "scale_down"),
        ({"speculation": {"tokens": 0}}, "speculation.tokens"),
        ({"speculation": {"tokens": 17}}, "speculation.tokens"),
        ({"speculation": {"tokens": 2.5}}, "speculation.tokens"),
        ({"speculation": {"tokens": "3"}}, "speculation.tokens"),
        ({"speculation": {"tokens": True}}, "speculation.tokens"),
        ({"speculation": {"method": "magic"}}, "speculation.method"),
        ({"speculation": {"method": "draft_model"}}, "speculation.method"),
        ({"speculation": {"method": "suffix"}}, "speculation.method"),
        ({"speculation": {"vocabulary": "mixed"}}, "speculation.vocabulary"),
        ({"wake": {"max_waiting": 0}}, "wake.max_waiting"),
        ({"wake": {"max_waiting": 10**30}}, "wake.max_waiting"),
        ({"wake": {"mode": "perhaps"}}, "wake.mode"),
        ({"replicas": {"min": 1, "max": 2}}, "replicas.max"),
        ({"replicas": {"min": 0}}, "replicas.min"),
        ({"context_length": 0}, "context_length"),
        ({"context_length": "4096"}, "context_length"),
        ({"revision": "../main"}, "revision"),
        ({"hub_token": "hf_abcdefghijklmnop"}, "hub_token"),
        ({"engine": {"version": "latest"}}, "engine.version"),
        ({"engine": {"version": "0.1.0"}}, "engine.version"),
        ({"engine": {"args": {"host": "0.0.0.0"}}}, "engine.args.host"),
        ({"engine": {"args": {"trust-remote-code": True}}}, "engine.args.trust-remote-code"),
        ({"engine": {"args": {"dtype": "auto; rm -rf /"}}}, "engine.args.dtype"),
        ({"labels": {"a": 1}}, "labels.a"),
        ({"labels": []}, "labels"),
        ({"colour": "red"}, "colour"),
        ({"scale_down": {"when": "1h"}}, "scale_down.when"),
    ],
)
def test_a_wrong_value_is_named_by_its_path_and_nothing_is_made(
    one_client: TestClient, fields: dict[str, Any], path: str
) -> None:
    refused = one_client.post(PATH, json={**SPEC, **fields})
    problem = refused.json()
    assert refused.status_code == 422, problem
    assert path in [e["path"] for e in problem["errors"]]
    assert problem["code"]
    assert problem["hint"]
    assert len(problem["detail"]) < 400
    assert nothing_was_made(one_client)


def test_every_wrong_value_is_named_at_once(one_client: TestClient) -> None:
    wrong = {"name": "A", "model": "x", "wake": {"max_waiting": 0}, "colour": 1}
    paths = [e["path"] for e in one_client.post(PATH, json=wrong).json()["errors"]]
    assert sorted(paths) == ["colour", "model", "name", "wake.max_waiting"]


def test_faults_that_only_this_installation_knows_are_named_together(
    one_client: TestClient,
) -> None:
    wrong = {**SPEC, "model": "demo/none", "tier": "none"}
    refused = one_client.post(PATH, json=wrong)
    assert {e["path"] for e in refused.json()["errors"]} == {"model", "tier"}


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"", "empty_body"),
        (b"   ", "empty_body"),
        (b"{", "invalid_json"),
        (b"name: hello", "invalid_json"),
        (b'{"name": NaN}', "invalid_json"),
        (b'{"context_length": Infinity}', "invalid_json"),
        (b'{"context_length": 1e999}', "invalid_json"),
        (b'{"context_length": ' + b"9" * 5000 + b"}", "invalid_json"),
        (b'{"name": "\xff\xfe"}', "invalid_utf8"),
        (b'{"name": "a", "name": "b"}', "duplicate_key"),
        (b'{"labels": {"a": "\\u0000"}}', "invalid_text"),
        (b'{"labels": {"a": "\\ud800"}}', "invalid_text"),
        (b'{"a":' * 40 + b"1" + b"}" * 40, "too_deep"),
        (b"[" * 100_000, "too_deep"),
    ],
)
@pytest.mark.parametrize("method", ["POST", "PATCH"])
def test_a_body_that_is_not_plain_json_is_malformed(
    one_client: TestClient, method: str, body: bytes, code: str
) -> None:
    path = PATH if method == "POST" else f"{PATH}/hello"
    refused = one_client.request(method, path, content=body)
    assert (refused.status_code, refused.json()["code"]) == (400, code)
    assert refused.json()["hint"]
    assert nothing_was_made(one_client)


@pytest.mark.parametrize("body", [[], "text", 5, None, True])
def test_a_spec_that_is_no_object_is_refused(one_client: TestClient, body: Any) -> None:
    refused = one_client.post(PATH, content=json.dumps(body).encode())
    assert refused.status_code == 422
    assert nothing_was_made(one_client)


def test_a_body_above_the_limit_is_refused_however_it_is_sent(one_client: TestClient) -> None:
    def chunks() -> Iterator[bytes]:
        yield b'{"name": "'
        for _ in range(300):
            yield b"x" * 10_000

    for content in (b"x" * 2_000_000, chunks()):
        refused = one_client.post(PATH, content=content)
        assert (refused.status_code, refused.json()["code"]) == (413, "body_too_large")
        assert refused.headers["content-type"] == "application/problem+json"


def test_an_endless_body_is_cut_off_while_it_comes(live: httpx2.Client) -> None:
    sent = 0

    def endless() -> Iterator[bytes]:
        nonlocal sent
        while sent < 200_000_000:
            sent += 65536
            yield b"x" * 65536

    with contextlib.suppress(httpx2.TransportError):  # it closes while we are still sending
        assert live.post(PATH, content=endless()).status_code == 413
    assert sent < 100_000_000
    assert live.get(PATH).json()["items"] == []


@pytest.mark.parametrize(
    "params",
    [
        {"limit": "0"},
        {"limit": "201"},
        {"limit": "many"},
        {"phase": "flying"},
        {"desired": "both"},
        {"tier": "A B"},
        {"name": "%"},
        {"name": "a\x00"},
        {"label": "a\x00=b"},
        {"model": "not a model"},
        {"model": "plain"},
        {"cursor": "garbage!"},
        {"cursor": "WyJhIl0"},
        {"cursor": "bnVsbA"},
        {"cursor": "ы"},
        {"colour": "red"},
    ],
)
def test_a_wrong_parameter_is_a_problem(one_client: TestClient, params: dict[str, str]) -> None:
    refused = one_client.get(PATH, params=params)
    assert refused.status_code == 422
    assert next(e["path"] for e in refused.json()["errors"]).split(".")[0] == next(iter(params))


@pytest.mark.parametrize("key", ["", "x" * 129, "a b", "naïve"])
def test_an_idempotency_key_has_a_grammar(one_client: TestClient, key: str) -> None:
    refused = one_client.post(PATH, json=SPEC, headers={b"Idempotency-Key": key.encode("latin-1")})
    assert (refused.status_code, refused.json()["code"]) == (422, "invalid_header")
    assert nothing_was_made(one_client)


@pytest.mark.parametrize("tag", ["1", '"one"', '"-1"', '"1", "2"', '"99999999999999999999"'])
def test_an_if_match_has_a_grammar(one_client: TestClient, tag: str) -> None:
    refused = one_client.patch(f"{PATH}/hello", json={}, headers={"If-Match": tag})
    assert (refused.status_code, refused.json()["code"]) == (422, "invalid_header")


@pytest.mark.parametrize(
    "ref", ["none", "dep_01J", "a%00b", "%F0%9F%90%8E", "x" * 5000, "..%2e", "%ff", "a%20b"]
)
@pytest.mark.parametrize(
    ("method", "rest"),
    [
        ("GET", ""),
        ("PATCH", ""),
        ("DELETE", ""),
        ("POST", "/pause"),
        ("POST", "/wake"),
        ("GET", "/events"),
        ("GET", "/logs"),
        ("GET", "/logs?follow=true"),
        ("GET", "/metrics"),
        ("GET", "/manifest"),
    ],
)
def test_what_is_not_there_is_a_404_whatever_it_is_called(
    one_client: TestClient, method: str, rest: str, ref: str
) -> None:
    content = b"{}" if method == "PATCH" else None
    missing = one_client.request(method, f"{PATH}/{ref}{rest}", content=content)
    assert missing.status_code == 404
    assert missing.headers["content-type"] == "application/problem+json"
    assert missing.json()["code"] in {"deployment_not_found", "no_such_path"}


def test_an_unknown_path_and_a_wrong_method_are_problems_too(one_client: TestClient) -> None:
    lost = one_client.get("/api/v1/nowhere")
    assert (lost.status_code, lost.json()["code"]) == (404, "no_such_path")
    wrong = one_client.put(PATH)
    assert (wrong.status_code, wrong.json()["code"]) == (405, "method_not_allowed")
    assert set(wrong.headers["allow"].split(", ")) <= {"GET", "POST"}
    for answer in (lost, wrong):
        assert answer.headers["content-type"] == "application/problem+json"
        keys = {"type", "title", "status", "code", "detail", "hint", "errors"}
        assert set(answer.json()) == keys


@pytest.mark.parametrize(
    ("method", "path", "body", "rule"),
    [
        ("POST", "/api/v1/keys", {"name": "a\nb"}, "A key's name is 1-64 characters without"),
        ("POST", "/api/v1/keys", {"name": "ci", "expires_in": "soon"}, "A duration is a whole"),
        ("POST", "/api/v1/keys", {"name": "ci", "expires_in": "9" * 14 + "h"}, "30 days at most"),
        ("POST", "/api/v1/models", {"name": "A B", "path": "/x"}, "A name is 2-40 of a-z"),
        ("GET", f"{PATH}?name=A", None, "It is 1-40 of a-z 0-9"),
        ("GET", f"{PATH}?model=a%20b", None, "A model's ID is"),
    ],
)
def test_a_form_is_told_in_words_and_never_as_a_pattern(
    one_client: TestClient, method: str, path: str, body: Any, rule: str
) -> None:
    answer = one_client.request(method, path, json=body)
    assert answer.status_code == 422
    assert rule in answer.json()["detail"]
    assert not any(mark in answer.text for mark in ("[a-z0-9]", "pattern '", "Value error", ".."))
