"""What the plugin mends, asked of the real vLLM in the engine's own environment."""

import json
import os
import subprocess

import pytest

from controlplane.engine_envs import EngineEnv

pytestmark = [pytest.mark.engine, pytest.mark.timeout(900)]  # the first test may install it

# Three requests with 2, 0 and 3 drafted tokens; the second value is one to be replaced. The
# output is filled with -7 first, so that what is not written shows.
_EXPAND = """
import json, torch
from vllm.plugins import load_general_plugins
load_general_plugins()
from vllm.platforms import current_platform
current_platform.import_kernels()
from vllm.utils import cpu_triton_utils as kernels
def expand(dtype):
    output = torch.full((5,), -7, dtype=dtype)
    given = torch.tensor([2, 5, 0], dtype=dtype)
    kernels._expand_kernel_impl(
        output, given, torch.tensor([2, 2, 5], dtype=torch.int32), 0, 1, MAX_NUM_TOKENS=128
    )
    return output.tolist()
print(json.dumps([expand(torch.float32), expand(torch.int32), expand(torch.int64)]))
"""
EXPECTED = [2, 2, 1, 1, 1]


def expanded(env: EngineEnv, plugins: str) -> list[list[float]]:
    assert env.python is not None
    done = subprocess.run(
        [str(env.python), "-c", _EXPAND],
        env=os.environ | {"VLLM_PLUGINS": plugins, "VLLM_LOGGING_LEVEL": "ERROR"},
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found: list[list[float]] = json.loads(done.stdout.splitlines()[-1])
    return found


def test_with_the_plugin_values_are_expanded_whatever_their_type(engine_env: EngineEnv) -> None:
    assert expanded(engine_env, "slipstream") == [EXPECTED] * 3


def test_without_the_plugin_only_one_type_is_and_the_rest_stays_uninitialised(
    engine_env: EngineEnv,
) -> None:
    """When this fails, vLLM has mended the fault itself and the plugin can go."""
    floats, ints, longs = expanded(engine_env, "")
    assert floats == ints == [-7] * 5
    assert longs == EXPECTED
