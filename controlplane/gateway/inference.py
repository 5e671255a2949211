"""`/v1`: who asks for what, placed, sent, and the answer passed on as it comes."""

from __future__ import annotations

import json
import time

from controlplane.auth.principals import Action, Principal, may
from controlplane.gateway import answers
from controlplane.gateway.answers import Answer, Answered
from controlplane.gateway.asgi import (
    Gone,
    Headers,
    Receive,
    Scope,
    Send,
    header,
    read_body,
    request_id,
    respond,
    respond_answer,
    until_gone,
)
from controlplane.gateway.asks import Ask, read_ask
from controlplane.gateway.dispatch import Dispatcher, Request, Sending
from controlplane.gateway.engines import Broken, EngineLost, Engines, NothingAccepted, Reply
from controlplane.gateway.keyring import bearer
from controlplane.gateway.routes import Route
from controlplane.telemetry import GATEWAY_OVERHEAD_SECONDS, GATEWAY_REQUESTS, logger

INFERENCE_PATHS = frozenset({"/v1/chat/completions", "/v1/completions", "/v1/embeddings"})
MODELS_PATH = "/v1/models"
_DONE = b"[DONE]"
_STREAM_HEADERS = [(b"cache-control", b"no-cache"), (b"x-accel-buffering", b"no")]
_log = logger("gateway")


class Call:
    """One request under `/v1`, from its head to its end."""

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.scope, self.receive, self._send = scope, receive, send
        self.arrived = time.monotonic()
        self.id = request_id(scope)
        self.path: str = scope["path"]
        self.code, self.deployment = 0, ""

    @property
    def begun(self) -> bool:
        """True when the client has been told a status: nothing can be taken back."""
        return self.code != 0

    @property
    def extra(self) -> Headers:
        return [(b"x-request-id", self.id.encode("latin-1"))]

    async def start(self, status: int, headers: Headers) -> None:
        self.code = status
        await self._send(
            {
                "type": "http.response.start",
                "status": status,
                "headers": [*headers, *self.extra],
            }
        )

    async def body(self, chunk: bytes, *, more: bool) -> None:
        await self._send({"type": "http.response.body", "body": chunk, "more_body": more})

    async def answer(self, answer: Answer) -> None:
        self.code = answer.status
        await respond_answer(self._send, answer, self.extra)

    async def json(self, value: object) -> None:
        self.code = 200
        body = json.dumps(value).encode()
        await respond(self._send, 200, [(b"content-type", b"application/json"), *self.extra], body)


class Inference:
    def __init__(self, dispatcher: Dispatcher, engines: Engines, max_body_bytes: int) -> None:
        self._dispatcher, self._engines = dispatcher, engines
        self._max_body_bytes = max_body_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        call = Call(scope, receive, send)
        try:
            await self._serve(call)
        except Answered as e:
            if call.begun:
                raise
            await call.answer(e.answer)
        except Gone:
            call.code = call.code or 499
        except Exception:
            _log.exception("gateway_fault", request_id=call.id, deployment=call.deployment)
            if call.begun:
                raise
            await call.answer(answers.INTERNAL)
        finally:
            GATEWAY_REQUESTS.labels(call.deployment, str(call.code or 499)).inc()

    async def _serve(self, call: Call) -> None:
        models = call.path == MODELS_PATH or call.path.startswith(MODELS_PATH + "/")
        if not models and call.path not in INFERENCE_PATHS:
            raise Answered(answers.no_such_path(call.path))
        method = "GET" if models else "POST"
        if call.scope["method"] != method:
            raise Answered(answers.wrong_method(method))
        caller = self._caller(call)
        if models:
            return await self._models(call, caller)
        if not may(caller.role, Action.INFER):
            raise Answered(answers.FORBIDDEN)
        ask = read_ask(await read_body(call.scope, call.receive, self._max_body_bytes))
        return await until_gone(call.receive, self._infer(call, caller, ask))

    def _caller(self, call: Call) -> Principal:
        book = self._dispatcher.book
        if not book.loaded:
            raise Answered(answers.NOT_LOADED)
        caller = book.keys.who(bearer(header(call.scope, b"authorization")), call.arrived)
        if caller is None:
            raise Answered(answers.UNAUTHENTICATED)
        return caller

    async def _models(self, call: Call, caller: Principal) -> None:
        table = self._dispatcher.book.table
        name = call.path[len(MODELS_PATH) + 1 :]
        if not name:
            listed = [_model(r) for r in table.listed(caller.workspace)]
            return await call.json({"object": "list", "data": listed})
        route = table.find(caller.workspace, name)
        if route is None:
            near = table.near(caller.workspace, name)
            raise Answered(answers.unknown_model(name, near))
        return await call.json(_model(route))

    async def _infer(self, call: Call, caller: Principal, ask: Ask) -> None:
        """Place and send; again while nothing was accepted, never after."""
        request = Request(caller.workspace, ask.model, len(ask.body), call.arrived)
        if self._dispatcher.book.table.find(caller.workspace, ask.model) is not None:
            call.deployment = ask.model
        started = time.monotonic()
        while True:
            sending = await self._dispatcher.place(request)
            with sending.flight:
                GATEWAY_OVERHEAD_SECONDS.observe(time.monotonic() - started)
                try:
                    return await self._exchange(call, sending, ask)
                except NothingAccepted:
                    self._dispatcher.refused(sending)
                except EngineLost as e:
                    self._report("engine_lost", call, sending, silent=e.silent)
                    lost = answers.ENGINE_SILENT if e.silent else answers.ENGINE_LOST
                    raise Answered(lost) from e

    async def _exchange(self, call: Call, sending: Sending, ask: Ask) -> None:
        route = sending.route
        headers = {
            "Content-Type": "application/json",
            "Authorization": f"Bearer {route.engine_key}",
            "X-Request-Id": call.id,
        }
        traceparent = header(call.scope, b"traceparent")
        if traceparent is not None and len(traceparent) <= 128:
            headers["traceparent"] = traceparent.decode("latin-1")
        async with self._engines.send(
            sending.target.endpoint, call.path, ask.body, headers
        ) as reply:
            self._dispatcher.answered(sending)
            await call.start(reply.status, _reply_headers(reply))
            try:
                await self._relay(call, sending, reply)
            except Broken as e:
                self._report("answer_broken", call, sending, silent=e.silent)
                if not reply.is_stream:
                    return  # the server closes the connection: less came than was announced
                end = answers.ENGINE_SILENT if e.silent else answers.ENGINE_DIED
                await call.body(end.event, more=False)

    async def _relay(self, call: Call, sending: Sending, reply: Reply) -> None:
        """Each chunk as it comes. A stream that ends without its end mark was cut."""
        counts, deployment_id, tail = self._dispatcher.counts, sending.route.id, b""
        try:
            async for chunk in reply.chunks():
                counts.touch(deployment_id, time.monotonic())
                if reply.is_stream:
                    tail = (tail + chunk)[-32:]
                await call.body(chunk, more=True)
        finally:
            counts.touch(deployment_id, time.monotonic())
        if reply.is_stream and _DONE not in tail:
            raise Broken
        sending.flight.end()
        await call.body(b"", more=False)

    def _report(self, what: str, call: Call, sending: Sending, **more: object) -> None:
        _log.warning(
            what,
            deployment=sending.route.name,
            replica=sending.target.key,
            request_id=call.id,
            path=call.path,
            **more,
        )


def _reply_headers(reply: Reply) -> Headers:
    made = [(b"content-type", reply.content_type.encode("latin-1"))] if reply.content_type else []
    if reply.content_length is not None:
        made.append((b"content-length", str(reply.content_length).encode()))
    return [*made, *_STREAM_HEADERS] if reply.is_stream else made


def _model(route: Route) -> dict[str, object]:
    return {
        "id": route.name,
        "object": "model",
        "created": route.created,
        "owned_by": "slipstream",
        "slipstream": {"phase": str(route.phase)},
    }
