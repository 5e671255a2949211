"""vLLM's endpoints, answered without a model."""

from __future__ import annotations

import argparse
import asyncio
import itertools
import os
import signal
import time
from typing import Any

from stub_knobs import Knobs, LiveKnobs
from stub_wire import Gone, Reply, Request

VERSION = "0.32.0"


class Refusal(Exception):
    def __init__(self, status: int, kind: str, message: str, param: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.body = {"error": {"message": message, "type": kind, "param": param, "code": status}}


class Surface:
    """The engine's state and every endpoint. `dead` is set when the engine core died."""

    def __init__(self, args: argparse.Namespace, knobs: LiveKnobs, key: str | None) -> None:
        self.args, self.knobs, self._key = args, knobs, key
        self.name: str = knobs().wrong_name or args.served_model_name or args.model
        self.longest: int = args.max_model_len or knobs().max_model_len
        spec = args.speculative_config
        self.drafted: int = int(spec.get("num_speculative_tokens", 3)) if spec else 0
        self.slots = asyncio.Semaphore(args.max_num_seqs)
        self.running = self.waiting = 0
        self.cut, self.dead, self.refusing = asyncio.Event(), asyncio.Event(), False
        self.idle = asyncio.Event()
        self.idle.set()
        self.counts = dict.fromkeys(
            ("prompt", "generated", "drafts", "drafted", "accepted", "stop", "length", "abort"), 0
        )
        self.seen: list[dict[str, Any]] = []
        self._numbers = itertools.count(1)

    async def handle(self, request: Request, reply: Reply) -> None:
        self.seen = [
            *self.seen[-199:],
            {"method": request.method, "path": request.path, "headers": request.headers},
        ]
        if self.knobs().mute:
            await asyncio.Event().wait()
        try:
            await self._route(request, reply)
        except Refusal as no:
            await reply.json(no.status, no.body)

    async def _route(self, request: Request, reply: Reply) -> None:
        if (
            request.path.startswith("/v1/")
            and self._key
            and request.headers.get("authorization") != f"Bearer {self._key}"
        ):
            return await reply.json(401, {"error": "Unauthorized"})
        routes = {
            ("GET", "/health"): self._health,
            ("GET", "/ping"): self._health,
            ("GET", "/version"): lambda _, r: r.json(200, {"version": VERSION}),
            ("GET", "/load"): lambda _, r: r.json(200, {"server_load": self.running}),
            ("GET", "/metrics"): self._metrics,
            ("GET", "/v1/models"): self._models,
            ("POST", "/v1/chat/completions"): self._complete,
            ("POST", "/v1/completions"): self._complete,
            ("POST", "/v1/embeddings"): self._embed,
            ("GET", "/stub/requests"): lambda _, r: r.json(200, self.seen),
        }
        handler = routes.get((request.method, request.path))
        if handler is None:
            known = any(path == request.path for _, path in routes)
            status, word = (405, "Method Not Allowed") if known else (404, "Not Found")
            return await reply.json(status, {"detail": word})
        return await handler(request, reply)

    async def _health(self, _request: Request, reply: Reply) -> None:
        await reply.text(503 if self.dead.is_set() else self.knobs().health_status, "")

    async def _models(self, _request: Request, reply: Reply) -> None:
        card = {
            "id": self.name, "object": "model", "created": int(time.time()), "owned_by": "vllm",
            "root": self.args.model, "parent": None, "max_model_len": self.longest,
        }  # fmt: skip
        await reply.json(200, {"object": "list", "data": [card]})

    async def _metrics(self, _request: Request, reply: Reply) -> None:
        if self.knobs().no_metrics:
            return await reply.json(404, {"detail": "Not Found"})
        label = f'engine="0",model_name="{self.name}"'
        c = self.counts
        rows = {
            f"vllm:num_requests_running{{{label}}}": self.running,
            f"vllm:num_requests_waiting{{{label}}}": self.waiting,
            f"vllm:kv_cache_usage_perc{{{label}}}": 0.0,
            f"vllm:prompt_tokens_total{{{label}}}": c["prompt"],
            f"vllm:generation_tokens_total{{{label}}}": c["generated"],
        }
        for why in ("stop", "length", "abort"):
            rows[
                f'vllm:request_success_total{{engine="0",finished_reason="{why}",'
                f'model_name="{self.name}"}}'
            ] = c[why]
        if self.drafted:
            rows[f"vllm:spec_decode_num_drafts_total{{{label}}}"] = c["drafts"]
            rows[f"vllm:spec_decode_num_draft_tokens_total{{{label}}}"] = c["drafted"]
            rows[f"vllm:spec_decode_num_accepted_tokens_total{{{label}}}"] = c["accepted"]
        text = "".join(f"{name} {float(value)}\n" for name, value in rows.items())
        return await reply.text(200, text, "text/plain; version=0.0.4; charset=utf-8")

    async def _embed(self, request: Request, reply: Reply) -> None:
        body = self._body(request)
        texts = body.get("input", "")
        texts = texts if isinstance(texts, list) else [texts]
        words = sum(len(str(t).split()) for t in texts)
        data = [
            {"object": "embedding", "index": n, "embedding": [len(str(t)) / 100, 0.5, -0.5]}
            for n, t in enumerate(texts)
        ]
        await reply.json(
            200,
            {
                "object": "list", "data": data, "model": self.name,
                "usage": {"prompt_tokens": words, "total_tokens": words},
            },
        )  # fmt: skip

    def _body(self, request: Request) -> dict[str, Any]:
        if self.dead.is_set() or self.refusing:
            raise Refusal(500, "InternalServerError", "EngineCore encountered an issue.")
        try:
            body = request.json()
        except ValueError as e:
            raise Refusal(400, "BadRequestError", f"Invalid JSON: {e}") from e
        if not isinstance(body, dict):
            raise Refusal(400, "BadRequestError", "The body must be an object.")
        if body.get("model") != self.name:
            raise Refusal(
                404, "NotFoundError", f"The model `{body.get('model')}` does not exist.", "model"
            )
        return body

    async def _complete(self, request: Request, reply: Reply) -> None:
        body = self._body(request)
        chat = request.path == "/v1/chat/completions"
        work = _Work(self, body, chat, next(self._numbers))
        if self.knobs().die_on_request == "before":
            os._exit(self.knobs().crash_code)
        self.waiting += 1
        self.idle.clear()
        started, outcome = False, "abort"
        try:
            try:
                await self.slots.acquire()
            finally:
                self.waiting -= 1
            self.running += 1
            started = True
            self.counts["prompt"] += work.prompt_tokens
            await (work.stream(reply) if body.get("stream") else work.whole(reply))
            outcome = work.finish
        finally:
            if started:
                self.running -= 1
                self.slots.release()
            self.counts[outcome] += 1
            if not self.running and not self.waiting:
                self.idle.set()


class _Work:
    """One completion."""

    def __init__(self, surface: Surface, body: dict[str, Any], chat: bool, number: int) -> None:
        self._s, self._body, self._chat = surface, body, chat
        self._id = f"{'chatcmpl' if chat else 'cmpl'}-{os.getpid()}-{number}"
        self._made = 0
        self.prompt_tokens = _words(body.get("messages" if chat else "prompt", ""))
        asked = body.get("max_completion_tokens") or body.get("max_tokens")
        if not (asked is None or isinstance(asked, int)):
            raise Refusal(400, "BadRequestError", "max_tokens must be a whole number.")
        if self.prompt_tokens + (asked or 1) > surface.longest:
            raise Refusal(
                400,
                "BadRequestError",
                f"This model's maximum context length is {surface.longest} tokens. However, you "
                f"requested {asked or 0} output tokens and your prompt contains "
                f"{self.prompt_tokens} input tokens.",
                "input_tokens",
            )
        full = surface.knobs().tokens
        self._wanted = min(full, asked) if asked else full
        self.finish = "length" if asked and asked < full else "stop"

    @property
    def _usage(self) -> dict[str, int]:
        total = self.prompt_tokens + self._made
        return {
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": self._made,
            "total_tokens": total,
        }

    async def _steps(self, reply: Reply) -> Any:
        """The text of each step. Ends early never; raises Gone when nobody listens."""
        s = self._s
        knobs = s.knobs()
        words = knobs.text.split() or ["word"]
        await self._pause(knobs.first_token_seconds)
        steps = 0
        while self._made < self._wanted:
            knobs = s.knobs()
            await self._pause(knobs.token_seconds)
            if reply.client_left():
                raise Gone
            step = 1
            if s.drafted:
                accepted = min(knobs.accepted, s.drafted)
                step += accepted
                s.counts["drafts"] += 1
                s.counts["drafted"] += s.drafted
                s.counts["accepted"] += accepted
            step = min(step, self._wanted - self._made)
            text = "".join(
                f"{words[n % len(words)]} " for n in range(self._made, self._made + step)
            )
            self._made += step
            s.counts["generated"] += step
            yield text
            steps += 1
            _maybe_die(knobs, steps)

    async def _pause(self, seconds: float) -> None:
        """One step's time. For ever once streams were cut; ends at once when the core died."""
        ends = [asyncio.create_task(e.wait()) for e in (self._s.dead, self._s.cut)]
        try:
            await asyncio.wait(ends, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for e in ends:
                e.cancel()
        if self._s.dead.is_set():
            raise Refusal(500, "InternalServerError", "EngineCore encountered an issue.")
        if self._s.cut.is_set():
            await asyncio.Event().wait()

    async def whole(self, reply: Reply) -> None:
        text = "".join([part async for part in self._steps(reply)])
        await reply.json(200, self._object("", text, self.finish) | {"usage": self._usage})

    async def stream(self, reply: Reply) -> None:
        await reply.begin()
        if self._chat:
            await reply.event(self._object(".chunk", "", None, role=True))
        try:
            async for text in self._steps(reply):
                await reply.event(self._object(".chunk", text, None))
        except Refusal as no:
            await reply.event(no.body)
        else:
            await reply.event(self._object(".chunk", "", self.finish))
            if (self._body.get("stream_options") or {}).get("include_usage"):
                last = self._object(".chunk", "", None) | {"choices": [], "usage": self._usage}
                await reply.event(last)
        await reply.event("[DONE]")
        await reply.end()

    def _object(
        self, suffix: str, text: str, finish: str | None, *, role: bool = False
    ) -> dict[str, Any]:
        choice: dict[str, Any] = {"index": 0, "finish_reason": finish, "logprobs": None}
        if not self._chat:
            kind = "text_completion"
            choice["text"] = text
        elif suffix:
            kind = "chat.completion.chunk"
            choice["delta"] = {"role": "assistant", "content": ""} if role else {"content": text}
        else:
            kind = "chat.completion"
            choice["message"] = {"role": "assistant", "content": text}
        return {
            "id": self._id,
            "object": kind,
            "created": int(time.time()),
            "model": self._s.name,
            "choices": [choice],
        }


def _maybe_die(knobs: Knobs, steps: int) -> None:
    if knobs.die_on_request == "during" and steps == 3:
        os.kill(os.getpid(), signal.SIGKILL)


def _words(prompt: Any) -> int:
    if isinstance(prompt, str):
        return len(prompt.split())
    if isinstance(prompt, list):
        return sum(_words(p) if not isinstance(p, int) else 1 for p in prompt)
    if isinstance(prompt, dict):
        return _words(prompt.get("content") or prompt.get("text") or "")
    return 0
