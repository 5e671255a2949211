"""Tiers: what is built in, what a file says, what this machine has."""

from typing import Any

import pytest

from controlplane.domain.tiers import (
    BUILT_IN,
    GIB,
    Device,
    DeviceKind,
    Tier,
    found_tiers,
    here,
    merge,
    parse_tiers,
    serves,
)
from controlplane.errors import Invalid

H200 = Device("0", DeviceKind.CUDA, "NVIDIA H200", 143_771 * 2**20)
L4 = Device("1", DeviceKind.CUDA, "NVIDIA L4", 24 * GIB)
CPU = Device("cpu0", DeviceKind.CPU, "AMD EPYC", 24 * GIB, cores=(0, 1))


def test_the_built_in_tiers_are_one_h200_and_two() -> None:
    tiers = merge(BUILT_IN)
    assert {n: (t.gpu, t.count) for n, t in tiers.items()} == {
        "low-cost": ("H200", 1),
        "standard": ("H200", 2),
    }


@pytest.mark.parametrize(
    ("gpu", "model", "fits"),
    [
        ("H200", "NVIDIA H200", True),
        ("H200", "NVIDIA H200 NVL", True),
        ("H200", "NVIDIA H20", False),
        ("A100", "NVIDIA A100-SXM4-80GB", True),
        ("A10", "NVIDIA A100-SXM4-80GB", False),
        ("L4", "NVIDIA L40S", False),
        (None, "anything", True),
    ],
)
def test_a_gpu_is_known_by_whole_words_of_its_name(gpu: str | None, model: str, fits: bool) -> None:
    device = Device("0", DeviceKind.CUDA, model, GIB)
    assert serves(device, Tier("t", DeviceKind.CUDA, gpu=gpu)) is fits


def test_a_tier_is_here_only_with_all_its_gpus() -> None:
    tiers = merge(BUILT_IN)
    assert here(tiers["low-cost"], [H200])
    assert not here(tiers["standard"], [H200, L4])
    assert here(tiers["standard"], [H200, H200])
    assert not here(tiers["low-cost"], [CPU])


def test_a_machine_with_gpus_offers_each_model_and_not_its_processor() -> None:
    found = found_tiers([H200, L4, CPU])
    assert {t.name: t.gpu for t in found} == {"h200": "NVIDIA H200", "l4": "NVIDIA L4"}
    assert all(here(t, [H200, L4]) for t in found)


def test_a_machine_without_gpus_offers_its_processor() -> None:
    (tier,) = found_tiers([CPU])
    assert (tier.name, tier.device, tier.kv_cache_gib) == ("cpu", DeviceKind.CPU, 3)
    assert found_tiers([]) == ()


def test_a_file_adds_tiers_and_replaces_built_in_ones() -> None:
    ours = parse_tiers(
        {"tiers": [{"name": "low-cost", "device": "cuda", "gpu": "L40S", "price_hour": 1.5}]}
    )
    assert merge(BUILT_IN, ours)["low-cost"].gpu == "L40S"


@pytest.mark.parametrize(
    ("raw", "path"),
    [
        (None, None),
        ({"tiers": {}}, None),
        ({"tiers": ["cpu"]}, "tiers[0]"),
        ({"tiers": [{"device": "cuda"}]}, "tiers[0].name"),
        ({"tiers": [{"name": "x y", "device": "cuda"}]}, "tiers[0].name"),
        ({"tiers": [{"name": True, "device": "cuda"}]}, "tiers[0].name"),
        ({"tiers": [{"name": "ab", "device": "tpu"}]}, "tiers[0].device"),
        ({"tiers": [{"name": "ab", "device": "cuda", "count": 0}]}, "tiers[0].count"),
        ({"tiers": [{"name": "ab", "device": "cuda", "count": True}]}, "tiers[0].count"),
        ({"tiers": [{"name": "ab", "device": "cuda", "memory_bytes": "80g"}]},
         "tiers[0].memory_bytes"),
        ({"tiers": [{"name": "ab", "device": "cuda", "color": "red"}]}, "tiers[0].color"),
        ({"tiers": [{"name": "ab", "device": "cpu"}, {"name": "ab", "device": "cpu"}]}, "tiers"),
    ],
)  # fmt: skip
def test_a_wrong_file_is_refused_with_the_place(raw: Any, path: str | None) -> None:
    with pytest.raises(Invalid) as refused:
        parse_tiers(raw)
    assert refused.value.code == "invalid_tiers"
    assert path is None or path in {f.path for f in refused.value.fields}
