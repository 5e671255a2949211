"""Hardware classes: what a deployment may ask for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from enum import StrEnum
from typing import Any

from controlplane.domain.naming import NAME_RULE, is_name
from controlplane.errors import FieldError, Invalid

GIB = 2**30


class DeviceKind(StrEnum):
    CUDA = "cuda"
    ROCM = "rocm"
    CPU = "cpu"


@dataclass(frozen=True, slots=True)
class Tier:
    """One hardware class. `count` is GPUs (or CPU slots) that one replica takes;
    `memory_bytes` is of one of them; `bandwidth` is bytes/s of one; `price_hour` is of a
    replica, in the installation's currency. None: not known."""

    name: str
    device: DeviceKind
    gpu: str | None = None
    count: int = 1
    memory_bytes: int | None = None
    bandwidth: float | None = None
    price_hour: float | None = None
    kv_cache_gib: int | None = None
    description: str = ""


@dataclass(frozen=True, slots=True)
class Device:
    """One GPU, or one share of the processor, that this machine has. `cores` are the
    processor numbers that a CPU share may use, and empty for a GPU."""

    id: str
    kind: DeviceKind
    model: str
    memory_bytes: int
    cores: tuple[int, ...] = ()


H200_BYTES = 143_771 * 2**20

BUILT_IN: tuple[Tier, ...] = (
    Tier(
        "low-cost",
        DeviceKind.CUDA,
        gpu="H200",
        count=1,
        memory_bytes=H200_BYTES,
        bandwidth=4.8e12,
        description="One NVIDIA H200",
    ),
    Tier(
        "standard",
        DeviceKind.CUDA,
        gpu="H200",
        count=2,
        memory_bytes=H200_BYTES,
        bandwidth=4.8e12,
        description="Two NVIDIA H200",
    ),
)


def serves(device: Device, tier: Tier) -> bool:
    """True when `device` is of the class that `tier` names. GPU names are compared by the
    words that makers put in them: "NVIDIA H200 NVL" is an H200."""
    if device.kind is not tier.device:
        return False
    return tier.gpu is None or _words(tier.gpu) <= _words(device.model)


def _words(gpu: str) -> set[str]:
    return set(gpu.lower().replace("-", " ").split())


def here(tier: Tier, devices: Iterable[Device]) -> bool:
    """True when this machine's devices can hold one replica of `tier`."""
    return sum(serves(d, tier) for d in devices) >= tier.count


def found_tiers(devices: Iterable[Device]) -> tuple[Tier, ...]:
    """Tiers for what a machine really has: one for each GPU model, else one for its CPU."""
    devices = tuple(devices)
    gpus = {d.model: d for d in devices if d.kind is not DeviceKind.CPU}
    if gpus:
        return tuple(
            Tier(
                _gpu_tier_name(model),
                d.kind,
                gpu=model,
                memory_bytes=d.memory_bytes,
                description=f"One {model} of this machine",
            )
            for model, d in gpus.items()
        )
    for d in devices:
        return (
            Tier(
                "cpu",
                DeviceKind.CPU,
                memory_bytes=d.memory_bytes,
                kv_cache_gib=max(1, min(8, d.memory_bytes // GIB // 8)),
                description=f"{len(d.cores)} cores of this machine's processor",
            ),
        )
    return ()


def _gpu_tier_name(model: str) -> str:
    words = [w for w in model.lower().replace("/", " ").split() if w not in {"nvidia", "amd"}]
    return "-".join(words)[:40].strip("-._") or "gpu"


def parse_tiers(raw: object) -> tuple[Tier, ...]:
    """The tiers that a tiers file lists: `{"tiers": [{"name": ..., "device": ...}]}`.

    Raises Invalid, with a path for each wrong value.
    """
    rows = raw.get("tiers") if isinstance(raw, Mapping) else None
    if not isinstance(rows, list):
        raise Invalid("invalid_tiers", 'A tiers file holds a list under "tiers".')
    faults: list[FieldError] = []
    tiers = [_parse_tier(f"tiers[{n}]", row, faults) for n, row in enumerate(rows)]
    names = [t.name for t in tiers if t]
    for name in {n for n in names if names.count(n) > 1}:
        faults.append(FieldError("tiers", "duplicate", f'Two tiers are named "{name}".'))
    if faults:
        raise Invalid(
            "invalid_tiers", f"The tiers file is wrong: {faults[0].detail}", fields=tuple(faults)
        )
    return tuple(t for t in tiers if t)


_NUMBERS = {"count": int, "memory_bytes": int, "bandwidth": float, "price_hour": float,
            "kv_cache_gib": int}  # fmt: skip


def _parse_tier(path: str, row: Any, faults: list[FieldError]) -> Tier | None:
    before = len(faults)
    if not isinstance(row, Mapping):
        faults.append(FieldError(path, "type", "A tier is a mapping."))
        return None
    unknown = set(row) - {f.name for f in fields(Tier)}
    faults.extend(FieldError(f"{path}.{k}", "unknown", f'A tier has no "{k}".') for k in unknown)
    name = row.get("name")
    if not isinstance(name, str) or not is_name(name):
        faults.append(FieldError(f"{path}.name", "name", f"A tier's name is {NAME_RULE}."))
    if row.get("device") not in list(DeviceKind):
        faults.append(FieldError(f"{path}.device", "device", "device is cuda, rocm or cpu."))
    for key, kind in _NUMBERS.items():
        value = row.get(key)
        right = isinstance(value, (int, kind)) and not isinstance(value, bool)
        if value is not None and (not right or value <= 0):
            faults.append(FieldError(f"{path}.{key}", "number", f"{key} is a number above 0."))
    for key in ("gpu", "description"):
        if row.get(key) is not None and not isinstance(row[key], str):
            faults.append(FieldError(f"{path}.{key}", "type", f"{key} is a text."))
    if len(faults) > before:
        return None
    return Tier(**{**row, "device": DeviceKind(row["device"])})


def merge(*catalogues: Iterable[Tier]) -> dict[str, Tier]:
    """One catalogue by name; a later one's tier replaces an earlier one's of that name."""
    return {t.name: t for tiers in catalogues for t in tiers}
