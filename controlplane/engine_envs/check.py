"""Ask an engine environment, from inside, whether it works and what is in it."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

from controlplane.domain.engines import PLUGIN
from controlplane.domain.tiers import DeviceKind
from controlplane.errors import Unavailable
from controlplane.uv import python_of

_LIMIT_SECONDS = 300.0  # an import takes 10 s here, and much more from a cold, slow disk
_ASK = """
import json, platform
from importlib.metadata import entry_points, version
import torch, transformers, vllm
print(json.dumps({
    "python": platform.python_version(),
    "vllm": version("vllm"),
    "torch": torch.__version__,
    "transformers": transformers.__version__,
    "plugins": ",".join(sorted(p.name for p in entry_points(group="vllm.general_plugins"))),
}))
"""


def check(kind: DeviceKind, environment: Path) -> dict[str, str]:
    """The versions in `environment`, after importing them there.

    Raises Unavailable when it can't import vLLM or lacks our plugin.
    """
    try:
        done = subprocess.run(
            [str(python_of(environment)), "-c", _ASK],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_LIMIT_SECONDS,
            check=False,
            stdin=subprocess.DEVNULL,
            cwd=environment,  # nothing of the caller's folder is imported by accident
            env=_environment(kind),
        )
    except (OSError, subprocess.TimeoutExpired) as e:
        raise _broken(type(e).__name__) from e
    try:
        said = json.loads(done.stdout.splitlines()[-1])
        found = {str(k): str(v) for k, v in said.items()}
    except (ValueError, IndexError, AttributeError) as e:
        lines = [x for x in done.stderr.splitlines() if x.strip()]
        why = lines[-1].strip()[:300] if lines else f"it ended with status {done.returncode}"
        raise _broken(why) from e
    if PLUGIN not in found["plugins"].split(","):
        raise _broken("Slipstream's plugin is not in it")
    return found


def _environment(kind: DeviceKind) -> dict[str, str]:
    env = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "PYTHONHOME")}
    env |= {"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "VLLM_LOGGING_LEVEL": "ERROR"}
    if kind is DeviceKind.CPU:
        env["CUDA_VISIBLE_DEVICES"] = ""
    return env


def _broken(why: str) -> Unavailable:
    return Unavailable(
        "engine_broken",
        f"The engine does not work on this machine: {why}.",
        hint="Remove its folder under the data directory's engines/ and install it again; if it "
        "stays so, this processor may lack what vLLM needs (AVX2 on x86-64).",
    )
