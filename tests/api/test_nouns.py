"""The smaller nouns: plans, tiers, models, manifests, metrics, health, and the plain paths."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import text

from controlplane.api.openapi import FILE, rendered
from controlplane.services.site import Site
from tests.api.conftest import SPEC

pytestmark = pytest.mark.system
API = "/api/v1"
HELLO = f"{API}/deployments/hello"
Deploy = Callable[..., dict[str, Any]]
METRICS = """\
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="hello"} 2.0
# TYPE vllm:num_requests_waiting gauge
vllm:num_requests_waiting{engine="0",model_name="hello"} 1.0
# TYPE vllm:generation_tokens counter
vllm:generation_tokens_total{engine="0",model_name="hello"} 500.0
# TYPE vllm:spec_decode_num_drafts counter
vllm:spec_decode_num_drafts_total{engine="0",model_name="hello"} 100.0
# TYPE vllm:spec_decode_num_draft_tokens counter
vllm:spec_decode_num_draft_tokens_total{engine="0",model_name="hello"} 300.0
# TYPE vllm:spec_decode_num_accepted_tokens counter
vllm:spec_decode_num_accepted_tokens_total{engine="0",model_name="hello"} 150.0
"""


@pytest.fixture
def engine() -> Iterator[str]:
    """An address whose /metrics answers as vLLM's does."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200 if self.path == "/metrics" else 404)
            self.end_headers()
            self.wfile.write(METRICS.encode())

        def log_message(self, *_: Any) -> None:
            """Quiet."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    thread.join(10)
    server.server_close()


def place(site: Site, slot: int, endpoint: str | None) -> None:
    with site.begin() as session:
        session.execute(
            text(
                "INSERT INTO replicas (deployment_id, slot, render_hash, generation, devices,"
                " route, endpoint)"
                " SELECT id, :slot, 'abc', 1, '[]', 'serving', :e FROM deployments"
            ),
            {"slot": slot, "e": endpoint},
        )


def test_a_plan_says_what_a_spec_would_become_and_makes_nothing(client: TestClient) -> None:
    spec = {"model": "demo/smollm2-135m", "draft_model": "demo/smollm2-draft"}
    plan = client.post(f"{API}/plans", json=spec)
    assert plan.status_code == 200
    body = plan.json()
    assert body["spec"]["tier"] == "cpu"
    assert body["tier"]["name"] == "cpu"
    notes = [(f["severity"], f["code"]) for f in body["findings"]]
    assert notes == [("note", "draft_not_seen")], "the pair is not on this machine"
    assert body["command"]["args"][:2] == ["vllm", "serve"]
    assert "--port=<port>" in body["command"]["args"]
    assert "<weights of demo/smollm2-draft>" in body["command"]["text"]
    assert body["command"]["engine"] == "0.32.0"
    assert body["manifest"]["command"] == body["command"]
    for unknown in ("profile", "fit", "cost", "speedup"):
        assert body[unknown] is None
    assert client.get(f"{API}/deployments").json()["items"] == []


def test_a_plan_for_a_tier_that_is_not_here_is_made_with_a_finding(client: TestClient) -> None:
    plan = client.post(f"{API}/plans", json={**SPEC, "tier": "low-cost"}).json()
    assert plan["tier"]["here"] is False
    assert [(f["severity"], f["code"]) for f in plan["findings"]] == [("error", "tier_not_here")]
    assert plan["findings"][0]["hint"] == "Choose one of: cpu."
    assert plan["command"]["engine"] == "0.33.0"


def test_a_plan_names_what_stands_in_the_way(client: TestClient, deploy: Deploy) -> None:
    deploy()
    fields = {"speculation": {"method": "suffix"}, "model": "local/none"}
    plan = client.post(f"{API}/plans", json={**SPEC, **fields}).json()
    codes = {f["code"] for f in plan["findings"]}
    assert codes == {"unsupported_method", "unknown_model", "name_taken"}


@pytest.mark.parametrize("body", [[], {}, {"model": "x"}, {**SPEC, "tier": "none"}])
def test_a_plan_of_a_wrong_spec_is_refused(one_client: TestClient, body: Any) -> None:
    assert one_client.post(f"{API}/plans", json=body).status_code == 422


def test_tiers_are_the_configured_ones_and_what_is_here(one_client: TestClient) -> None:
    tiers = {t["name"]: t for t in one_client.get(f"{API}/tiers").json()["items"]}
    assert {n: (t["here"], t["default"]) for n, t in tiers.items()} == {
        "cpu": (True, True),
        "low-cost": (False, False),
        "standard": (False, False),
    }
    assert tiers["low-cost"]["gpu"] == "H200"
    assert tiers["standard"]["count"] == 2


def test_a_registered_folder_can_be_deployed_and_stays_while_it_is_used(
    client: TestClient, deploy: Deploy, model_folder: Path
) -> None:
    asked = {"name": "mine", "path": str(model_folder)}
    made = client.post(f"{API}/models", json=asked)
    assert made.status_code == 201
    assert made.json()["name"] == "local/mine"
    assert made.json()["ready"] is True
    again = client.post(f"{API}/models", json=asked)
    assert (again.status_code, again.json()["code"]) == (409, "model_name_taken")
    names = [m["name"] for m in client.get(f"{API}/models").json()["items"]]
    assert names == ["demo/smollm2-135m", "demo/smollm2-draft", "local/mine"]
    deploy(model="local/mine")
    used = client.delete(f"{API}/models/mine")
    assert (used.status_code, used.json()["code"]) == (409, "model_in_use")
    client.patch(HELLO, json={"model": "demo/smollm2-135m"})
    assert client.delete(f"{API}/models/local/mine").status_code == 204
    assert client.delete(f"{API}/models/mine").status_code == 404
    assert (model_folder / "config.json").exists()


def test_a_folder_that_holds_no_model_is_not_registered(
    one_client: TestClient, tmp_path: Path, model_folder: Path
) -> None:
    (tmp_path / "file").write_text("")
    for path in (
        "relative",
        "",
        str(tmp_path),
        str(tmp_path / "none"),
        str(tmp_path / "file"),
        f"{model_folder}/../weights",
        "/" + "x" * 5000,
        f"{tmp_path}/a\nb",
    ):
        refused = one_client.post(f"{API}/models", json={"name": "mine", "path": path})
        assert refused.status_code == 422, path
        assert [e["path"] for e in refused.json()["errors"]] == ["path"]
        assert refused.json()["hint"]
    for name in ("A", "", "a..b", "a--b", "demo/x1", "../x", 5, None):
        asked = {"name": name, "path": str(model_folder)}
        refused = one_client.post(f"{API}/models", json=asked)
        assert refused.status_code == 422, name
        assert [e["path"] for e in refused.json()["errors"]] == ["name"]


@pytest.mark.parametrize("name", ["none", "a%00b", "demo/smollm2-135m", "%F0%9F"])
def test_what_was_not_registered_can_not_be_removed(one_client: TestClient, name: str) -> None:
    assert one_client.delete(f"{API}/models/{name}").status_code == 404


def test_a_manifest_is_the_command_line_with_what_is_known(
    client: TestClient, deploy: Deploy, site: Site
) -> None:
    deploy(draft_model="demo/smollm2-draft", context_length=512)
    command = client.get(f"{HELLO}/manifest").json()["command"]
    assert "--max-model-len=512" in command["args"]
    assert "--port=<port>" in command["args"]
    place(site, 0, "http://127.0.0.1:5123")
    command = client.get(f"{HELLO}/manifest").json()["command"]
    assert "--port=5123" in command["args"]
    with site.begin() as session:
        key = session.execute(text("SELECT engine_key FROM deployment_status")).scalar_one()
        session.execute(text('UPDATE deployments SET spec = spec || \'{"tier": "gone"}\''))
    assert key not in json.dumps(command)
    gone = client.get(f"{HELLO}/manifest")
    assert (gone.status_code, gone.json()["code"]) == (409, "unknown_tier")


def test_metrics_are_unknown_until_somebody_tells(client: TestClient, deploy: Deploy) -> None:
    deploy()
    assert client.get(f"{HELLO}/metrics").json() == {
        "in_flight": None,
        "held": None,
        "last_active_at": None,
        "engines": [],
        "speculation": None,
    }


def test_metrics_are_what_live_gateways_and_engines_tell(
    client: TestClient, deploy: Deploy, site: Site, engine: str
) -> None:
    made = deploy()
    place(site, 0, engine)
    place(site, 1, "http://127.0.0.1:1")
    place(site, 2, None)
    with site.begin() as session:
        for gateway, age, count in (("a", 0, 2), ("b", 0, 1), ("silent", 60, 40)):
            activity = {made["id"]: {"in_flight": count, "held": 1, "age_ms": 500}}
            session.execute(
                text(
                    "INSERT INTO gateways (id, seen_at, epoch, activity) VALUES"
                    " (:id, now() - make_interval(secs => :age), 1, :activity)"
                ),
                {"id": gateway, "age": age, "activity": json.dumps(activity)},
            )
    found = client.get(f"{HELLO}/metrics").json()
    assert (found["in_flight"], found["held"]) == (3, 2)
    assert found["last_active_at"].endswith("Z")
    assert [(e["replica"], e["answered"]) for e in found["engines"]] == [
        ("0-abc", True),
        ("1-abc", False),
        ("2-abc", False),
    ]
    assert (found["engines"][0]["running"], found["engines"][1]["running"]) == (2, None)
    assert found["engines"][0]["prompt_tokens"] is None
    assert found["speculation"]["acceptance"] == 0.5
    assert found["speculation"]["mean_length"] == 2.5


def test_health_names_each_part_with_its_age(client: TestClient, site: Site) -> None:
    before = client.get(f"{API}/health").json()
    assert before["status"] == "degraded"
    parts = {p["name"]: p for p in before["parts"]}
    assert set(parts) == {"database", "workers", "sweep", "gateways", "broker"}
    assert parts["database"]["ok"]
    assert parts["broker"]["ok"]
    assert (parts["workers"]["ok"], parts["workers"]["age_seconds"]) == (False, None)
    assert parts["workers"]["hint"]
    with site.begin() as session:
        session.execute(text("INSERT INTO workers (id) VALUES ('w')"))
        session.execute(text("INSERT INTO gateways (id, epoch, activity) VALUES ('g', 1, '{}')"))
        session.execute(text("INSERT INTO passes VALUES ('sweep', now(), 'w')"))
    assert client.get(f"{API}/health").json()["status"] == "ok"
    with site.begin() as session:
        session.execute(text("UPDATE workers SET finished_at = now() - interval '5 minutes'"))
    after = client.get(f"{API}/health").json()
    stale = next(p for p in after["parts"] if p["name"] == "workers")
    assert (after["status"], stale["ok"]) == ("degraded", False)
    assert stale["age_seconds"] >= 300


def test_without_its_database_everything_says_so_and_nothing_breaks(broken: TestClient) -> None:
    assert broken.get("/healthz").json() == {"status": "ok"}
    for method, path in [
        ("GET", "/readyz"),
        ("GET", f"{API}/deployments"),
        ("POST", f"{API}/deployments"),
        ("GET", f"{API}/stream"),
        ("GET", "/sign-in?token=abc"),
    ]:
        away = broken.request(method, path)
        assert (away.status_code, away.json()["code"]) == (503, "database_unavailable")
        assert away.json()["hint"]
        assert "retry-after" in away.headers
        assert "socket" not in away.text
    assert broken.get("/metrics").status_code == 200


def test_a_fault_of_ours_tells_nothing_of_itself(client: TestClient, site: Site) -> None:
    with site.begin() as session:
        session.execute(text("ALTER TABLE local_models RENAME TO elsewhere"))
    fault = client.get(f"{API}/models")
    assert (fault.status_code, fault.json()["code"]) == (500, "internal_error")
    assert "local_models" not in fault.text
    assert "Traceback" not in fault.text


def test_this_process_tells_its_metrics_by_the_names_that_are_fixed(client: TestClient) -> None:
    page = client.get("/metrics")
    assert page.headers["content-type"].startswith("text/plain")
    assert "# TYPE slipstream_deployments gauge" in page.text
    assert "# TYPE slipstream_reconcile_seconds histogram" in page.text


def test_the_docs_need_no_script_and_no_other_site(one_client: TestClient) -> None:
    page = one_client.get("/docs")
    assert page.status_code == 200
    assert "<script" not in page.text
    assert not re.search(r"(src|href)=\"(https?:)?//", page.text)
    assert "script-src" not in page.headers["content-security-policy"]
    assert page.headers["content-security-policy"].startswith("default-src 'none'")
    assert page.headers["x-content-type-options"] == "nosniff"
    for path in one_client.get("/openapi.json").json()["paths"]:
        assert path in page.text
    front = one_client.get("/")
    assert (front.status_code, front.headers["location"]) == (307, "/docs")


def test_the_stored_document_is_what_the_code_says() -> None:
    assert FILE.read_text(encoding="utf-8") == rendered()


def test_every_operation_declares_problems_for_what_it_needs(one_client: TestClient) -> None:
    document = one_client.get("/openapi.json").json()
    for path, item in document["paths"].items():
        for operation in item.values():
            declared = set(operation["responses"])
            assert "500" in declared
            if path.startswith(API):
                assert {"401", "403", "503"} <= declared, path
            if "requestBody" in operation:
                assert {"400", "413", "422"} <= declared, path
            if operation.get("parameters"):
                assert "422" in declared or not path.startswith(API), path
            for status, answer in operation["responses"].items():
                if status >= "400" and status != "410":
                    assert list(answer["content"]) == ["application/problem+json"]
