"""What this machine has: GPUs, processor, memory, disk, system.

Parsing is apart from reading, and nothing beyond the standard library is imported, so that
`make up` can say all this before anything is installed.
"""

from __future__ import annotations

import functools
import os
import platform
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from controlplane.domain.tiers import GIB, Device, DeviceKind
from controlplane.errors import Unavailable

if TYPE_CHECKING:
    from controlplane.settings import Settings

MIB = 2**20
_Parse = Callable[[str], float | None]
_SMI_SECONDS = 20.0  # the driver's first answer after a boot takes its time
_SMI_QUERY = "--query-gpu=index,uuid,name,memory.total,driver_version"
# Below this many cores an engine gets them all; above, four each are worth more together.
_ONE_SHARE_BELOW = 8
_CORES_A_SHARE = 4
# What the CPU engine uses where it is there, as /proc/cpuinfo says it and as we do.
_FEATURES = {
    "avx2": "AVX2",
    "avx512f": "AVX-512",
    "avx512_bf16": "AVX-512 BF16",
    "amx_bf16": "AMX",
    "asimd": "NEON",
    "bf16": "BF16",
}


@dataclass(frozen=True, slots=True)
class Gpu:
    """`memory_bytes` 0: the GPU shares the machine's memory and names none of its own."""

    index: int
    uuid: str
    model: str
    memory_bytes: int
    driver: str


@dataclass(frozen=True, slots=True)
class Machine:
    """`cores` are the processor numbers that we may use; `memory_bytes` is what we may use
    of the memory. `gpu_fault` says why a driver that is there tells nothing."""

    system: str
    python: str
    architecture: str
    processor: str
    features: tuple[str, ...]
    cores: tuple[int, ...]
    memory_bytes: int
    disk_free_bytes: int
    gpus: tuple[Gpu, ...]
    gpu_fault: str = ""

    @property
    def cpu_engine_runs(self) -> bool:
        """vLLM's CPU build needs AVX2 on x86-64, and NEON, which all have, on ARM."""
        return self.architecture in {"aarch64", "arm64"} or "AVX2" in self.features


def parse_nvidia_smi(text: str) -> tuple[Gpu, ...]:
    """GPUs from `nvidia-smi --query-gpu=... --format=csv,noheader,nounits`. Lines that are
    not of that form (a warning, "No devices were found") name no GPU."""
    found = []
    for line in text.splitlines():
        words = [w.strip() for w in line.split(",")]
        if len(words) != 5 or not words[0].isdigit() or not words[1].startswith("GPU-"):
            continue
        index, uuid, model, memory, driver = words
        size = int(memory) * MIB if memory.isdigit() else 0
        found.append(Gpu(int(index), uuid, model, size, driver))
    return tuple(found)


def parse_cpuinfo(text: str) -> tuple[str, tuple[str, ...]]:
    """The processor's name and those of its features that matter, from /proc/cpuinfo."""
    seen: dict[str, str] = {}
    for line in text.splitlines():
        key, colon, value = line.partition(":")
        if colon:
            seen.setdefault(key.strip().lower(), value.strip())
    flags = set((seen.get("flags") or seen.get("features") or "").lower().split())
    name = seen.get("model name") or seen.get("hardware") or ""
    return " ".join(name.split()), tuple(
        ours for theirs, ours in _FEATURES.items() if theirs in flags
    )


def parse_meminfo(text: str) -> int:
    """MemTotal in bytes; 0 when it is not told."""
    for line in text.splitlines():
        words = line.split()
        if len(words) >= 2 and words[0] == "MemTotal:" and words[1].isdigit():
            return int(words[1]) * 1024
    return 0


def parse_cpu_max(text: str) -> float | None:
    """How many cores' time a control group may take: `cpu.max` ("max 100000" is all)."""
    words = text.split()
    if len(words) == 2 and words[0].isdigit() and words[1].isdigit() and int(words[1]):
        return int(words[0]) / int(words[1])
    return None


def parse_memory_max(text: str) -> int | None:
    """A control group's limit in bytes; version 1 says "none" by an enormous number."""
    word = text.strip()
    return int(word) if word.isdigit() and int(word) < 2**60 else None


def parse_cgroup(text: str) -> dict[str, str]:
    """/proc/self/cgroup: controller to path; version 2's own path is under ""."""
    paths = {}
    for line in text.splitlines():
        parts = line.split(":", 2)
        if len(parts) == 3:
            for controller in parts[1].split(","):
                paths[controller] = parts[2]
    return paths


def usable(cores: Sequence[int], limit: float | None) -> tuple[int, ...]:
    """The cores that we may keep busy: no more than the time that a limit leaves us."""
    ordered = tuple(sorted(cores))
    return ordered if limit is None else ordered[: max(1, int(limit))]


def cpu_shares(machine: Machine, slots: int) -> tuple[Device, ...]:
    """The processor in `slots` shares (0: as many as make sense) with cores of their own."""
    cores = machine.cores
    count = slots or (1 if len(cores) < _ONE_SHARE_BELOW else len(cores) // _CORES_A_SHARE)
    count = min(count, len(cores))
    each = len(cores) // count
    return tuple(
        Device(
            id=f"cpu-{n}",
            kind=DeviceKind.CPU,
            model=machine.processor or "CPU",
            memory_bytes=machine.memory_bytes // count,
            cores=cores[n * each : (n + 1) * each],
        )
        for n in range(count)
    )


def devices_of(machine: Machine, slots: int) -> tuple[Device, ...]:
    """Where engines can be placed: on the GPUs, and where there are none on CPU shares."""
    if machine.gpus:
        return tuple(
            Device(g.uuid, DeviceKind.CUDA, g.model, g.memory_bytes or machine.memory_bytes)
            for g in machine.gpus
        )
    return cpu_shares(machine, slots)


def find_devices(settings: Settings) -> tuple[Device, ...]:
    """This machine's devices, looked up once for a process. Raises Unavailable when the GPU
    driver doesn't answer in time: then nobody knows, and the next call asks again."""
    return _find(settings.engines.cpu_slots, settings.data_dir)


@functools.cache
def _find(slots: int, data_dir: Path) -> tuple[Device, ...]:
    return devices_of(describe(data_dir), slots)


def describe(data_dir: Path) -> Machine:
    """What is here now. Raises Unavailable when the GPU driver doesn't answer in time."""
    gpus, fault = _gpus()
    processor, features = parse_cpuinfo(_read("/proc/cpuinfo"))
    groups = parse_cgroup(_read("/proc/self/cgroup"))
    total = parse_meminfo(_read("/proc/meminfo"))
    limit = _least(groups, "memory", ("memory.max", "memory.limit_in_bytes"), parse_memory_max)
    return Machine(
        system=_system(),
        python=platform.python_version(),
        architecture=platform.machine(),
        processor=processor or platform.machine(),
        features=features,
        cores=usable(tuple(os.sched_getaffinity(0)), _cpu_limit(groups)),
        memory_bytes=min(total, int(limit)) if limit is not None else total,
        disk_free_bytes=disk_free(data_dir),
        gpus=gpus,
        gpu_fault=fault,
    )


def disk_free(path: Path) -> int:
    """Bytes that we may still write where `path` lies or will lie."""
    there = path.absolute()
    while not there.exists():
        there = there.parent
    return shutil.disk_usage(there).free


def sentences(machine: Machine) -> tuple[tuple[str, str], ...]:
    """What a person wants to know of a machine: pairs of a word and what goes with it."""
    gpus = [f"{g.model}, {_gib(g.memory_bytes)}, driver {g.driver}" for g in machine.gpus]
    features = ", ".join(machine.features) or "none that engines use"
    return (
        ("GPU", "; ".join(gpus) or machine.gpu_fault or "none, so engines run on the processor"),
        ("Processor", f"{machine.processor}, {len(machine.cores)} usable cores, {features}"),
        ("Memory", _gib(machine.memory_bytes)),
        ("Disk", f"{_gib(machine.disk_free_bytes)} free"),
        ("System", f"{machine.system}, {machine.architecture}, Python {machine.python}"),
    )


def _gib(size: int) -> str:
    return f"{size / GIB:.0f} GiB" if size >= 10 * GIB else f"{size / GIB:.1f} GiB"


def _gpus() -> tuple[tuple[Gpu, ...], str]:
    program = shutil.which("nvidia-smi")
    if program is None:
        return (), ""
    try:
        result = subprocess.run(
            [program, _SMI_QUERY, "--format=csv,noheader,nounits"],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_SMI_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired as e:
        raise Unavailable(
            "gpu_driver_silent",
            f"nvidia-smi did not answer within {_SMI_SECONDS:.0f} seconds.",
            hint="Run nvidia-smi; if it hangs too, the driver needs a restart of the machine.",
        ) from e
    except OSError as e:
        return (), f"nvidia-smi can't be run: {e.strerror}"
    gpus = parse_nvidia_smi(result.stdout)
    if gpus:
        return gpus, ""
    said = (result.stdout + result.stderr).strip().splitlines()
    return (), f"none told by nvidia-smi: {said[0][:200]}" if said else ""


def _cpu_limit(groups: Mapping[str, str]) -> float | None:
    limit = _least(groups, "cpu", ("cpu.max",), parse_cpu_max)
    base = Path("/sys/fs/cgroup/cpu") / groups.get("cpu", "/").lstrip("/")
    old = f"{_read(base / 'cpu.cfs_quota_us')} {_read(base / 'cpu.cfs_period_us')}"
    limits = [x for x in (limit, parse_cpu_max(old)) if x is not None]
    return min(limits, default=None)


def _least(
    groups: Mapping[str, str], controller: str, names: Sequence[str], parse: _Parse
) -> float | None:
    """The smallest limit on the way from our control group up to the root, in either
    version's folders. In a container the path may not be visible; then the root's counts."""
    found = []
    for root, path in (
        (Path("/sys/fs/cgroup"), groups.get("", "/")),
        (Path("/sys/fs/cgroup") / controller, groups.get(controller, "/")),
    ):
        at = root / path.lstrip("/")
        while True:
            found += [x for n in names if (x := parse(_read(at / n))) is not None]
            if at == root or root not in at.parents:
                break
            at = at.parent
    return min(found, default=None)


def _read(path: str | Path) -> str:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _system() -> str:
    try:
        return platform.freedesktop_os_release().get("PRETTY_NAME") or platform.system()
    except OSError:
        return platform.system()
