"""What `/v1` is to callers: paths, keys, bodies, names, and nothing else."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from tests.gateway.world import World, until

pytestmark = pytest.mark.system


OTHER_PATHS = (
    "/v1",
    "/v1/",
    "/v1/sleep",
    "/v1/chat/completions/",
    "/v1/../metrics",
    "/v1/load_lora_adapter",
    "/v1/responses",
    "/v1/modelsx",
    "/%761/wake_up",
)


def test_every_other_path_under_v1_is_not_found(gateway: World) -> None:
    async def story() -> None:
        async with gateway.visit() as (w, _):
            for path in OTHER_PATHS:
                status, body = await _raw(w, f"POST {path} HTTP/1.1")
                assert status == 404, path
                assert body["error"]["code"] == "not_found"
                assert body["error"]["type"] == "invalid_request_error"

    asyncio.run(story())


def test_a_wrong_method_says_which_is_right(gateway: World) -> None:
    async def story() -> None:
        async with gateway.visit() as (_, caller):
            async with caller.get("/v1/chat/completions") as answer:
                assert (answer.status, answer.headers["Allow"]) == (405, "POST")
            async with caller.post("/v1/models", {}) as answer:
                assert (answer.status, answer.headers["Allow"]) == (405, "GET")

    asyncio.run(story())


def test_without_a_valid_key_nothing_is_told(gateway: World) -> None:
    async def story() -> None:
        async with gateway.visit() as (w, caller):
            for shown in ("", "Bearer", "Bearer nobody", f"Basic {w.key.text}", w.key.text):
                headers = {"Authorization": shown} if shown else {}
                for method, path in (("GET", "/v1/models"), ("POST", "/v1/chat/completions")):
                    url = w.url + path
                    async with caller.session.request(method, url, headers=headers) as answer:
                        error = (await answer.json())["error"]
                    assert answer.status == 401
                    assert error["code"] == "invalid_api_key"
                    assert error["type"] == "authentication_error"

    asyncio.run(story())


def test_a_viewer_sees_models_and_may_not_call_them(gateway: World) -> None:
    async def story() -> None:
        async with gateway.visit() as (w, caller):
            await w.deploy("hello")
            viewer = w.add_key("viewer").text
            await w.shown(w.epoch())
            async with caller.get("/v1/models", key=viewer) as answer:
                assert answer.status == 200
            async with caller.ask("hello", key=viewer) as answer:
                assert answer.status == 403

    asyncio.run(story())


def test_a_revoked_or_expired_key_stops_and_a_new_one_works(gateway: World) -> None:
    async def story() -> None:
        async with gateway.visit() as (w, caller):
            revoked, expiring = w.add_key(), w.add_key()
            await w.shown(w.epoch())

            async def status(key: str) -> int:
                async with caller.get("/v1/models", key=key) as answer:
                    return int(answer.status)

            assert await status(revoked.text) == await status(expiring.text) == 200
            revoke = "UPDATE api_keys SET revoked_at = now() WHERE lookup = %s"
            expire = "UPDATE api_keys SET expires_at = now() + interval '1 s' WHERE lookup = %s"
            w.sql(revoke, revoked.lookup)
            w.sql(expire, expiring.lookup)
            await w.shown(w.epoch())
            assert await status(revoked.text) == 401

            async def expired() -> bool:
                return await status(expiring.text) == 401

            await until(expired, "the key expires without any new epoch")

    asyncio.run(story())


def test_models_lists_what_is_declared_with_its_phase_and_nothing_of_others(
    gateway: World,
) -> None:
    async def story() -> None:
        async with gateway.visit() as (w, caller):
            async with gateway.visit() as (other, _):
                await other.deploy("not-ours")
                await w.deploy("sleeper")
                await w.deploy("ready", phase="ready")
                await w.deploy("going", phase="stopping")
                async with caller.get("/v1/models") as answer:
                    listed = await answer.json()
                assert listed["object"] == "list"
                assert {m["id"]: m["slipstream"]["phase"] for m in listed["data"]} == {
                    "sleeper": "asleep", "ready": "ready",
                }  # fmt: skip
                assert all(m["object"] == "model" for m in listed["data"])
                async with caller.get("/v1/models/sleeper") as answer:
                    assert (await answer.json())["id"] == "sleeper"
                for name in ("not-ours", "going", "nobody"):
                    async with caller.get(f"/v1/models/{name}") as answer:
                        assert answer.status == 404
                    status, body = await caller.answer(name)
                    assert (status, body["error"]["code"]) == (404, "model_not_found")
                    assert body["error"]["param"] == "model"

    asyncio.run(story())


def test_an_unknown_name_is_answered_with_near_ones(gateway: World) -> None:
    async def story() -> None:
        async with gateway.visit() as (w, caller):
            await w.deploy("qwen-vl")
            _, body = await caller.answer("Qwen-VL2")
            assert "Did you mean: qwen-vl?" in body["error"]["message"]

    asyncio.run(story())


UNROUTABLE = (
    (b"", "invalid_json", None),
    (b"{", "invalid_json", None),
    (b"[1]", "invalid_json", None),
    (b'{"model": "a\xff"}', "invalid_json", None),
    (b'{"model": "a", "t": NaN}', "invalid_json", None),
    (b'{"model": ' + b"[" * 200_000, "invalid_json", None),
    (b'{"messages": []}', "missing_model", "model"),
    (b'{"model": 5}', "invalid_model", "model"),
    (b'{"model": "a", "model": "b"}', "duplicate_field", "model"),
)


def test_a_body_that_cannot_be_routed_for_sure_is_refused(gateway: World) -> None:
    async def story() -> None:
        async with gateway.visit() as (_, caller):
            for body, code, param in UNROUTABLE:
                async with caller.post("/v1/completions", body) as answer:
                    error = (await answer.json())["error"]
                    assert (answer.status, error["code"], error["param"]) == (400, code, param)

    asyncio.run(story())


def test_a_body_passes_unchanged_with_the_engines_key_and_not_the_callers(
    gateway: World,
) -> None:
    async def story() -> None:
        async with gateway.visit() as (w, caller):
            deployment = await w.deploy("hello", phase="ready")
            engine = await w.engine("hello")
            await w.shown(w.route(deployment, engine.url))
            body = b'{ "model":"hello",  "n": 1.0,"text":"\\u00e9 \xc3\xa9" }'
            for path in ("/v1/chat/completions", "/v1/completions", "/v1/embeddings"):
                async with caller.post(path, body) as answer:
                    assert answer.status == 200
                    assert answer.headers["Content-Type"].startswith("application/json")
            assert engine.bodies == [body] * 3
            assert [r.path for r in engine.requests] == [
                "/v1/chat/completions", "/v1/completions", "/v1/embeddings",
            ]  # fmt: skip
            for request in engine.requests:
                assert w.key.text not in str(request.headers)

    asyncio.run(story())


def test_too_large_a_body_is_told_with_its_limit(gateway: World) -> None:
    async def story() -> None:
        async with gateway.visit() as (w, _):
            declared = f"Authorization: Bearer {w.key.text}\r\nContent-Length: 99999999999"
            status, body = await _raw(w, "POST /v1/completions HTTP/1.1", declared)
            assert (status, body["error"]["code"]) == (413, "body_too_large")
            assert "33554432" in body["error"]["message"]

    asyncio.run(story())


def test_a_large_body_below_the_limit_passes(gateway: World) -> None:
    async def story() -> None:
        async with gateway.visit() as (w, caller):
            deployment = await w.deploy("hello", phase="ready")
            engine = await w.engine("hello")
            await w.shown(w.route(deployment, engine.url))
            status, _ = await caller.answer("hello", image="x" * 20_000_000)
            assert status == 200
            assert len(engine.bodies[0]) > 20_000_000

    asyncio.run(story())


def test_a_request_id_is_cleaned_capped_passed_on_and_given_back(gateway: World) -> None:
    async def story() -> None:
        async with gateway.visit() as (w, caller):
            deployment = await w.deploy("hello", phase="ready")
            engine = await w.engine("hello")
            await w.shown(w.route(deployment, engine.url))
            sent = {**caller.headers(), "X-Request-Id": 'a"b {c}' + "d" * 500}
            url, data = w.url + "/v1/completions", b'{"model": "hello"}'
            async with caller.session.post(url, data=data, headers=sent) as answer:
                given = answer.headers["X-Request-Id"]
            assert given == "abc" + "d" * 125
            assert engine.requests[0].headers["X-Request-Id"] == given
            async with caller.ask("nobody") as answer:
                assert len(answer.headers["X-Request-Id"]) == 32

    asyncio.run(story())


def test_what_the_gateway_counts_is_told_by_the_names_of_the_interface(gateway: World) -> None:
    async def story() -> None:
        async with gateway.visit() as (w, caller):
            deployment = await w.deploy("counted", phase="ready")
            engine = await w.engine("counted")
            await w.shown(w.route(deployment, engine.url))
            assert (await caller.answer("counted"))[0] == 200
            assert (await caller.answer("x" * 1000))[0] == 404
            async with caller.get("/metrics") as answer:
                text = await answer.text()
            for line in (
                'slipstream_gateway_requests_total{code="200",deployment="counted"} 1.0',
                'slipstream_gateway_in_flight{deployment="counted"} 0.0',
                'slipstream_gateway_waiting{deployment="counted"} 0.0',
            ):
                assert line in text
            assert "slipstream_gateway_overhead_seconds_bucket" in text
            assert "xxxx" not in text

    asyncio.run(story())


async def _raw(w: World, line: str, headers: str = "X-A: b") -> tuple[int, dict[str, Any]]:
    """One request exactly as written, without a client's tidying of its path."""
    reader, writer = await asyncio.open_connection("127.0.0.1", w.port)
    try:
        writer.write(f"{line}\r\nHost: test\r\nConnection: close\r\n{headers}\r\n\r\n".encode())
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
        body = await reader.readexactly(length)
    finally:
        writer.close()
        await writer.wait_closed()
    return int(head.split()[1]), json.loads(body)
