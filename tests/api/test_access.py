from __future__ import annotations

from collections.abc import Callable

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from sqlalchemy import text

from controlplane.auth.keys import digest_of, make_key
from controlplane.services.site import Site

pytestmark = pytest.mark.system
KeyOf = Callable[[str], dict[str, str]]
API = "/api/v1"


@pytest.mark.parametrize(
    "header",
    [
        "",
        "Bearer",
        "Bearer ",
        "Bearer nothing",
        f"Bearer {make_key().text}",
        f"Bearer {make_key().text[:-1]}",
        "Basic YWRtaW46YWRtaW4=",
        "Bearer " + "x" * 5000,
        "Bearer a b",
    ],
)
def test_without_a_key_in_force_nothing_is_told(one_client: TestClient, header: str) -> None:
    headers = {"Authorization": header}
    for method, path in [
        ("GET", "/deployments"),
        ("POST", "/deployments"),
        ("GET", "/deployments/hello"),
        ("GET", "/stream"),
        ("GET", "/health"),
        ("GET", "/me"),
        ("GET", "/keys"),
        ("POST", "/sign-in-links"),
    ]:
        refused = one_client.request(method, API + path, headers=headers)
        assert (refused.status_code, refused.json()["code"]) == (401, "unauthenticated")
        assert refused.headers["www-authenticate"] == "Bearer"
        assert refused.json()["hint"]


def test_a_stranger_s_body_is_not_even_read(stranger: TestClient) -> None:
    refused = stranger.post(f"{API}/deployments", content=b"x" * 2_000_000)
    assert refused.status_code == 401


def test_a_key_works_until_it_is_revoked(client: TestClient) -> None:
    made = client.post(f"{API}/keys", json={"name": "ci", "role": "member"})
    assert made.status_code == 201
    key = made.json()
    headers = {"Authorization": f"Bearer {key['key']}"}
    assert key["key"].startswith(key["prefix"])
    me = client.get(f"{API}/me", headers=headers).json()
    assert me["role"] == "member"
    assert me["workspace"] == "default"
    assert me["key"] == {"id": key["id"], "name": "ci"}
    assert me["may"] == ["read", "plan", "deploy", "infer"]
    listed = client.get(f"{API}/keys")
    assert key["key"] not in listed.text
    assert [k["name"] for k in listed.json()["items"]] == ["ci", "admin"]
    assert client.delete(f"{API}/keys/{key['id']}").status_code == 204
    assert client.delete(f"{API}/keys/{key['id']}").status_code == 204
    assert client.get(f"{API}/me", headers=headers).status_code == 401
    revoked = client.get(f"{API}/keys").json()["items"][0]
    assert revoked["revoked_at"] is not None


def test_a_key_is_stored_as_a_digest_only(client: TestClient, site: Site) -> None:
    key = client.post(f"{API}/keys", json={"name": "ci"}).json()["key"]
    with site.begin() as session:
        rows = session.execute(text("SELECT api_keys::text FROM api_keys")).scalars().all()
    assert any(digest_of(key) in row for row in rows)
    assert all(key[-20:] not in row for row in rows)


def test_a_new_and_a_revoked_key_raise_the_route_epoch(client: TestClient, site: Site) -> None:
    epochs = [epoch(site)]
    key = client.post(f"{API}/keys", json={"name": "ci"}).json()
    epochs.append(epoch(site))
    client.delete(f"{API}/keys/{key['id']}")
    epochs.append(epoch(site))
    assert epochs == sorted(set(epochs))


def test_an_expired_key_is_no_key(client: TestClient, site: Site) -> None:
    made = client.post(f"{API}/keys", json={"name": "day", "expires_in": "1d"}).json()
    headers = {"Authorization": f"Bearer {made['key']}"}
    assert made["expires_at"] > made["created_at"]
    assert client.get(f"{API}/me", headers=headers).status_code == 200
    with site.begin() as session:
        session.execute(text("UPDATE api_keys SET expires_at = now() WHERE name = 'day'"))
    assert client.get(f"{API}/me", headers=headers).status_code == 401


def test_the_last_admin_key_can_not_be_revoked(client: TestClient) -> None:
    mine = client.get(f"{API}/me").json()["key"]["id"]
    refused = client.delete(f"{API}/keys/{mine}")
    assert (refused.status_code, refused.json()["code"]) == (409, "last_admin_key")
    client.post(f"{API}/keys", json={"name": "second", "role": "admin"})
    assert client.delete(f"{API}/keys/{mine}").status_code == 204
    assert client.get(f"{API}/me").status_code == 401


@pytest.mark.parametrize(
    ("body", "path"),
    [
        ({}, "name"),
        ({"name": ""}, "name"),
        ({"name": "a\nb"}, "name"),
        ({"name": "x" * 65}, "name"),
        ({"name": 5}, "name"),
        ({"name": "a", "role": "god"}, "role"),
        ({"name": "a", "expires_in": "0s"}, "expires_in"),
        ({"name": "a", "expires_in": 5}, "expires_in"),
        ({"name": "a", "colour": "red"}, "colour"),
        ([], ""),
    ],
)
def test_a_wrong_key_request_makes_no_key(one_client: TestClient, body: object, path: str) -> None:
    before = one_client.get(f"{API}/keys").json()
    refused = one_client.post(f"{API}/keys", json=body)
    assert refused.status_code == 422
    assert path in [e["path"] for e in refused.json()["errors"]]
    assert one_client.get(f"{API}/keys").json() == before


@pytest.mark.parametrize("ref", ["none", "key_%00", "%F0%9F"])
def test_an_unknown_key_can_not_be_revoked(one_client: TestClient, ref: str) -> None:
    assert one_client.delete(f"{API}/keys/{ref}").status_code == 404


CHANGES = [
    ("POST", "/deployments"),
    ("PATCH", "/deployments/hello"),
    ("DELETE", "/deployments/hello"),
    ("POST", "/deployments/hello/pause"),
    ("POST", "/deployments/hello/resume"),
    ("POST", "/deployments/hello/sleep"),
    ("POST", "/deployments/hello/wake"),
]
ADMIN_ONLY = [
    ("GET", "/keys"),
    ("POST", "/keys"),
    ("DELETE", "/keys/key_x"),
    ("POST", "/models"),
    ("DELETE", "/models/x2"),
    ("POST", "/sign-in-links"),
]
BODIES = {"/keys": {"name": "a"}, "/models": {"name": "mine", "path": "/"}}


@pytest.mark.parametrize(
    ("role", "method", "path"),
    [("viewer", *call) for call in CHANGES + ADMIN_ONLY]
    + [("member", *call) for call in ADMIN_ONLY],
)
def test_what_a_role_may_not_do_is_refused(
    one_client: TestClient, role: str, method: str, path: str
) -> None:
    made = one_client.post(f"{API}/keys", json={"name": "a", "role": role}).json()
    body = BODIES.get(path, {}) if method in {"POST", "PATCH"} else None
    headers = {"Authorization": f"Bearer {made['key']}"}
    refused = one_client.request(method, API + path, headers=headers, json=body)
    assert (refused.status_code, refused.json()["code"]) == (403, "forbidden")
    assert refused.json()["hint"]


def test_a_viewer_reads_and_a_member_deploys(client: TestClient, key_of: KeyOf) -> None:
    member, viewer = key_of("member"), key_of("viewer")
    spec = {"name": "hello", "model": "demo/smollm2-135m"}
    assert client.post(f"{API}/deployments", json=spec, headers=member).status_code == 201
    assert client.get(f"{API}/deployments/hello", headers=viewer).status_code == 200
    assert client.post(f"{API}/plans", json=spec, headers=viewer).status_code == 200
    events = client.get(f"{API}/deployments/hello/events", headers=viewer).json()["items"]
    assert events[0]["actor"] == "key:a member"


def test_another_workspace_s_deployment_is_as_unknown_as_none(
    client: TestClient, site: Site, app: FastAPI
) -> None:
    spec = {"name": "hello", "model": "demo/smollm2-135m"}
    mine = client.post(f"{API}/deployments", json=spec).json()
    key = make_key()
    with site.begin() as session:
        session.execute(text("INSERT INTO workspaces (id) VALUES ('other')"))
        session.execute(
            text(
                "INSERT INTO api_keys (id, workspace, name, role, lookup, digest)"
                " VALUES ('key_o', 'other', 'theirs', 'admin', :lookup, :digest)"
            ),
            {"lookup": key.lookup, "digest": key.digest},
        )
    theirs = {"Authorization": f"Bearer {key.text}"}
    assert client.get(f"{API}/deployments", headers=theirs).json()["items"] == []
    unknown = client.get(f"{API}/deployments/nothing", headers=theirs)
    for method, path in [("GET", ""), ("DELETE", ""), ("POST", "/pause"), ("GET", "/logs")]:
        for ref in ("hello", mine["id"]):
            answer = client.request(method, f"{API}/deployments/{ref}{path}", headers=theirs)
            assert (answer.status_code, answer.json()) == (404, unknown.json())
    assert client.post(f"{API}/deployments", json=spec, headers=theirs).status_code == 201
    assert [k["id"] for k in client.get(f"{API}/keys", headers=theirs).json()["items"]] == ["key_o"]


def test_a_sign_in_link_signs_one_browser_in_once(client: TestClient, app: FastAPI) -> None:
    made = client.post(f"{API}/sign-in-links")
    assert made.status_code == 201
    link = made.json()["url"]
    assert link.startswith("http://testserver/sign-in?token=")
    with TestClient(app, follow_redirects=False) as browser:
        first = browser.get(link)
        assert (first.status_code, first.headers["location"]) == (303, "/docs")
        cookie = first.headers["set-cookie"].lower()
        assert "httponly" in cookie
        assert "samesite=strict" in cookie
        assert browser.get(f"{API}/me").json()["role"] == "admin"
        assert browser.get("/docs").status_code == 200
        used = client.get(link)
        assert used.status_code == 410
        assert "slipstream open" in used.text
        assert used.headers["content-type"].startswith("text/html")


@pytest.mark.parametrize("token", ["", "nothing", "x" * 5000, "%00", "%F0%9F"])
def test_a_link_that_never_was_says_how_to_get_one(one_client: TestClient, token: str) -> None:
    assert one_client.get(f"/sign-in?token={token}").status_code == 410


def test_an_expired_link_and_an_expired_session_are_none(
    client: TestClient, app: FastAPI, site: Site
) -> None:
    links = [client.post(f"{API}/sign-in-links").json()["url"] for _ in range(2)]
    with TestClient(app, follow_redirects=False) as browser:
        browser.get(links[0])
        with site.begin() as session:
            session.execute(text("UPDATE sign_ins SET expires_at = now()"))
        assert browser.get(f"{API}/me").status_code == 401
        assert browser.get(links[1]).status_code == 410


@pytest.mark.parametrize("origin", [None, "http://evil.example", "null", "http://testserver:81"])
def test_a_browser_s_change_from_elsewhere_is_refused(
    client: TestClient, app: FastAPI, origin: str | None
) -> None:
    link = client.post(f"{API}/sign-in-links").json()["url"]
    spec = {"name": "hello", "model": "demo/smollm2-135m"}
    with TestClient(app, follow_redirects=False) as browser:
        browser.get(link)
        headers = {"Origin": origin} if origin else {}
        refused = browser.post(f"{API}/deployments", json=spec, headers=headers)
        assert (refused.status_code, refused.json()["code"]) == (403, "wrong_origin")
        own = browser.post(f"{API}/deployments", json=spec, headers={"Origin": "http://testserver"})
        assert own.status_code == 201


def test_a_revoked_key_ends_its_browser_sessions(client: TestClient, app: FastAPI) -> None:
    made = client.post(f"{API}/keys", json={"name": "b", "role": "admin"}).json()
    headers = {"Authorization": f"Bearer {made['key']}"}
    link = client.post(f"{API}/sign-in-links", headers=headers).json()["url"]
    with TestClient(app, follow_redirects=False) as browser:
        browser.get(link)
        assert browser.get(f"{API}/me").status_code == 200
        client.delete(f"{API}/keys/{made['id']}")
        assert browser.get(f"{API}/me").status_code == 401


def epoch(site: Site) -> int:
    with site.begin() as session:
        return int(session.execute(text("SELECT epoch FROM route_epoch")).scalar_one())
