"""The extra engine arguments that a person may set. All others are ours, or refused: no
address, key, plugin, remote code or file path ever comes from a spec."""

from __future__ import annotations

from collections.abc import Mapping

ALLOWED_ARGS: Mapping[str, type] = {
    "block-size": int,
    "dtype": str,
    "enable-auto-tool-choice": bool,
    "enable-chunked-prefill": bool,
    "enable-prefix-caching": bool,
    "enforce-eager": bool,
    "gpu-memory-utilization": float,
    "kv-cache-dtype": str,
    "max-num-batched-tokens": int,
    "max-num-seqs": int,
    "quantization": str,
    "reasoning-parser": str,
    "seed": int,
    "tool-call-parser": str,
}
"""Argument name (without its dashes) to the type of its value. A bool becomes `--name` or
`--no-name`."""
