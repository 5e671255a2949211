"""The stub's command line, and its knobs from `stub.json`."""

from __future__ import annotations

import argparse
import json
import os
import sys
from dataclasses import dataclass, fields

FLAGS = {
    "block-size", "disable-access-log-for-endpoints", "dtype", "gpu-memory-utilization",
    "kv-cache-dtype", "max-num-batched-tokens",
    "quantization", "reasoning-parser", "seed", "tool-call-parser", "tensor-parallel-size",
}  # fmt: skip
SWITCHES = {
    "enable-auto-tool-choice", "enable-chunked-prefill", "enable-prefix-caching", "enforce-eager",
}  # fmt: skip


@dataclass
class Knobs:
    start_seconds: float = 0.0
    fail_log: str | None = None
    exit_code: int = 1
    fail_times: int | None = None
    never_listen: bool = False
    crash_after_seconds: float | None = None
    crash_code: int = 0
    die_on_request: str | None = None
    die_now: int | None = None
    hang_on_term: bool = False
    wrong_name: str | None = None
    spawn_child: bool = False
    health_status: int = 200
    mute: bool = False
    no_metrics: bool = False
    token_seconds: float = 0.002
    first_token_seconds: float = 0.0
    tokens: int = 16
    text: str = "one two three four"
    max_model_len: int = 2048
    accepted: int = 2


class LiveKnobs:
    """`stub.json`, read again whenever it changed. A half-written file counts as unchanged."""

    def __init__(self, folder: str) -> None:
        self._path = os.path.join(folder, "stub.json")
        self._stamp: tuple[int, int, int] | None = None
        self._knobs = Knobs()

    def __call__(self) -> Knobs:
        try:
            s = os.stat(self._path)
            stamp = (s.st_mtime_ns, s.st_size, s.st_ino)
            if stamp != self._stamp:
                with open(self._path, encoding="utf-8") as f:
                    raw = json.load(f)
                unknown = set(raw) - {k.name for k in fields(Knobs)}
                if unknown:
                    sys.exit(f"stub.json has unknown knobs: {', '.join(sorted(unknown))}")
                self._knobs, self._stamp = Knobs(**raw), stamp
        except (OSError, ValueError):
            pass
        return self._knobs


def parse(argv: list[str]) -> argparse.Namespace:
    """vLLM's arguments, as far as ours are. An unknown one ends the process with 2, as there."""
    p = argparse.ArgumentParser(prog="vllm", allow_abbrev=False)
    sub = p.add_subparsers(dest="command", required=True)
    serve = sub.add_parser("serve", prog="vllm serve", allow_abbrev=False)
    serve.add_argument("model")
    serve.add_argument("--served-model-name")
    serve.add_argument("--host", default="127.0.0.1")
    serve.add_argument("--port", type=int, default=8000)
    serve.add_argument("--shutdown-timeout", type=float, default=0.0)
    serve.add_argument("--max-model-len", type=int)
    serve.add_argument("--max-num-seqs", type=int, default=8)
    serve.add_argument("--speculative-config", type=json.loads)
    for flag in FLAGS:
        serve.add_argument(f"--{flag}")
    for switch in SWITCHES:
        serve.add_argument(f"--{switch}", action=argparse.BooleanOptionalAction)
    return p.parse_args(argv)
