"""What an engine's process sees of the world: what it needs, and nothing else of ours."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from controlplane.domain.tiers import Device, DeviceKind

# Of our own environment. No token, key, address or setting of ours is among them.
PASSED_ON = ("LANG", "LC_ALL", "TZ", "LD_LIBRARY_PATH", "CUDA_HOME")
VISIBLE = {DeviceKind.CUDA: "CUDA_VISIBLE_DEVICES", DeviceKind.ROCM: "HIP_VISIBLE_DEVICES"}


def engine_environment(
    rendered: Mapping[str, str],
    *,
    program: str,
    preload: str | None,
    devices: Sequence[Device],
    key: str,
    home: Path,
    tmp: str,
    ours: Mapping[str, str],
) -> dict[str, str]:
    """The whole environment of one engine: `rendered` is what its command line's maker wants,
    `ours` this process's own. `home` keeps the engine's caches apart from the user's, whose
    hub token lies in theirs."""
    env = {name: ours[name] for name in PASSED_ON if name in ours}
    env.setdefault("LANG", "C.UTF-8")
    folders = [os.path.dirname(program), ours.get("PATH", os.defpath)]
    env |= {"PATH": os.pathsep.join(filter(None, folders)), "HOME": str(home), "TMPDIR": tmp}
    env |= rendered
    kinds = {d.kind for d in devices}
    if DeviceKind.CPU in kinds and preload is not None:
        env["LD_PRELOAD"] = preload
    for kind in kinds & VISIBLE.keys():
        env["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"
        env[VISIBLE[kind]] = ",".join(d.id for d in devices)
    env["VLLM_API_KEY"] = key
    return env
