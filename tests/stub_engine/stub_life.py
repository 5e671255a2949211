"""The stub process's life: start, serve, die as steered, stop as vLLM stops."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import time

from stub_knobs import Knobs, LiveKnobs, parse
from stub_surface import VERSION, Surface
from stub_wire import serve_connection

LONGEST_LIFE = 900  # s: a stub that a killed test forgot ends by itself
CHILD = "import signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\ntime.sleep(600)"


def main(argv: list[str]) -> int:
    args = parse(argv)
    signal.alarm(LONGEST_LIFE)
    if not os.path.isdir(args.model):
        print(f"Repo id must be in the form 'repo_name': '{args.model}'.", flush=True)
        return 1
    knobs = LiveKnobs(args.model)
    child = None
    if knobs().spawn_child:
        child = subprocess.Popen([sys.executable, "-S", "-E", "-I", "-c", CHILD])
    try:
        return _live(args, knobs, child)
    finally:
        if child is not None:
            child.kill()
            child.wait()


def _live(args: argparse.Namespace, knobs: LiveKnobs, child: subprocess.Popen[bytes] | None) -> int:
    starts = _record(args, child)
    _say("APIServer", "INFO", f"version {VERSION}  model   {args.model}")
    _say("APIServer", "INFO", "Resolved architecture: LlamaForCausalLM")
    k = knobs()
    time.sleep(k.start_seconds / 3)
    _say("EngineCore", "INFO", f"Initializing a V1 LLM engine (v{VERSION})")
    _say("Worker", "INFO", f"Starting to load model {args.model}...")
    time.sleep(k.start_seconds / 3)
    if k.fail_log and (k.fail_times is None or starts <= k.fail_times):
        _print_log(args.model, k)
        return k.exit_code
    _say("EngineCore", "INFO", "init engine (profile, create kv cache, warmup model) took 0.1 s")
    time.sleep(k.start_seconds / 3)
    if k.never_listen:
        signal.pause()
    return asyncio.run(_serve(args, knobs, child))


def _record(args: argparse.Namespace, child: subprocess.Popen[bytes] | None) -> int:
    """Appends this start to `starts.jsonl`; returns how many there were, this one included."""
    path = os.path.join(args.model, "starts.jsonl")
    line = {
        "pid": os.getpid(),
        "child": child.pid if child else None,
        "port": args.port,
        "name": args.served_model_name,
        "time": time.time(),
    }
    try:
        with open(path, "a", encoding="utf-8") as f:
            f.write(json.dumps(line) + "\n")
        with open(path, encoding="utf-8") as f:
            return sum(1 for _ in f)
    except OSError:
        return 1


def _print_log(folder: str, k: Knobs) -> None:
    with open(os.path.join(folder, k.fail_log or ""), encoding="utf-8") as f:
        sys.stdout.write(f.read())
    sys.stdout.flush()


async def _serve(
    args: argparse.Namespace, knobs: LiveKnobs, child: subprocess.Popen[bytes] | None
) -> int:
    surface = Surface(args, knobs, os.environ.get("VLLM_API_KEY") or None)
    ended: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind((args.host, args.port))
    server = await asyncio.start_server(
        lambda r, w: serve_connection(r, w, surface.handle), sock=listener
    )
    life = _Life(args, knobs, surface, ended)
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, life.on_term)
    asyncio.get_running_loop().add_signal_handler(signal.SIGINT, life.on_term)
    if knobs().crash_after_seconds is not None:
        life.after(knobs().crash_after_seconds or 0, knobs().crash_code)
    watch = asyncio.create_task(life.watch_child(child)) if child else None
    orders = asyncio.create_task(life.watch_orders())
    _say("APIServer", "INFO", f"Starting vLLM server on http://{args.host}:{args.port}")
    print(f"INFO:     Started server process [{os.getpid()}]", flush=True)
    print("INFO:     Application startup complete.", flush=True)
    code = await ended
    server.close()
    orders.cancel()
    if watch:
        watch.cancel()
    print(f"INFO:     Finished server process [{os.getpid()}]", flush=True)
    if child is not None:
        child.kill()
        child.wait()
    os._exit(code)  # streams that were cut must not end politely


class _Life:
    """How it ends."""

    def __init__(
        self, args: argparse.Namespace, knobs: LiveKnobs, surface: Surface,
        ended: asyncio.Future[int],
    ) -> None:  # fmt: skip
        self._args, self._knobs, self._surface, self._ended = args, knobs, surface, ended
        self._stopping: asyncio.Task[None] | None = None

    def end(self, code: int) -> None:
        if not self._ended.done():
            self._ended.set_result(code)

    def after(self, seconds: float, code: int) -> None:
        asyncio.get_running_loop().call_later(seconds, self.end, code)

    def on_term(self) -> None:
        _say("APIServer", "INFO", "[shutdown] API server: shutdown triggered")
        if self._knobs().hang_on_term or self._stopping is not None:
            return
        self._stopping = asyncio.create_task(self._stop())

    async def _stop(self) -> None:
        self._surface.refusing = True
        try:
            seconds = self._args.shutdown_timeout
            await asyncio.wait_for(self._surface.idle.wait(), max(seconds, 0.01))
        except TimeoutError:
            self._surface.cut.set()  # and it stays there, as the real one does
            return
        self.end(0)

    async def watch_orders(self) -> None:
        before = self._knobs().die_now
        while (status := self._knobs().die_now) is None or status == before:
            await asyncio.sleep(0.05)
        self.end(status)

    async def watch_child(self, child: subprocess.Popen[bytes]) -> None:
        while child.poll() is None:
            await asyncio.sleep(0.05)
        _say("APIServer", "ERROR", "AsyncLLM output_handler failed.")
        self._surface.dead.set()
        await asyncio.sleep(0.3)
        self.end(0)


def _say(who: str, level: str, text: str) -> None:
    now = time.strftime("%m-%d %H:%M:%S")
    print(f"({who} pid={os.getpid()}) {level} {now} [stub.py:1] {text}", flush=True)
