from __future__ import annotations

from typing import Any

import pytest

from controlplane.domain.spec_json import parse_spec
from controlplane.domain.tiers import BUILT_IN, GIB, Device, DeviceKind, found_tiers, here, merge
from controlplane.errors import Invalid, Refused
from controlplane.services.admission import local_names, objections, refuse
from controlplane.services.tiers import Catalogue, Offer

CPU = Device("cpu-0", DeviceKind.CPU, "a processor", 8 * GIB, (0, 1))
H200 = Device("GPU-1", DeviceKind.CUDA, "NVIDIA H200", 143 * GIB)


def catalogue(*devices: Device) -> Catalogue:
    tiers = merge(found_tiers(devices), BUILT_IN)
    offers = {t.name: Offer(t, here(t, devices)) for t in tiers.values()}
    return Catalogue(offers, next(iter(offers), None))


def spec(**fields: Any) -> Any:
    return parse_spec({"name": "hello", "model": "org/name", "tier": "cpu", **fields})


@pytest.mark.parametrize(
    ("fields", "devices", "codes"),
    [
        ({}, [CPU], []),
        ({"tier": "low-cost"}, [H200], []),
        ({"tier": "low-cost"}, [CPU], ["tier_not_here"]),
        ({"tier": "standard"}, [H200], ["tier_not_here"]),
        ({"tier": "standard"}, [H200, H200], []),
        ({"tier": "none"}, [CPU], ["unknown_tier"]),
        ({"model": "demo/none"}, [CPU], ["unknown_model"]),
        ({"model": "local/mine"}, [CPU], ["unknown_model"]),
        ({"draft_model": "local/kept"}, [CPU], []),
        ({"engine": {"version": "0.33.0"}}, [CPU], ["unknown_engine"]),
        ({"speculation": {"method": "suffix"}}, [CPU], ["unsupported_method"]),
        ({"speculation": {"method": "ngram"}}, [CPU], []),
        ({"tier": "none", "model": "demo/none"}, [CPU], ["unknown_model", "unknown_tier"]),
    ],
)
def test_what_stands_against_a_spec_here(
    fields: dict[str, Any], devices: list[Device], codes: list[str]
) -> None:
    against = objections(spec(**fields), catalogue(*devices), {"kept"})
    assert [e.code for e in against] == codes
    assert all(e.hint and e.fields for e in against)


def test_a_tier_that_was_accepted_once_is_not_held_against_another_change() -> None:
    before, after = spec(tier="low-cost"), spec(tier="low-cost", labels={"a": "b"})
    assert objections(after, catalogue(CPU), set(), before=before) == []
    moved = objections(after, catalogue(CPU), set(), before=spec())
    assert [e.code for e in moved] == ["tier_not_here"]


def test_wrong_values_are_raised_together_and_before_what_is_not_here() -> None:
    wrong = spec(tier="low-cost", model="demo/none", draft_model="demo/nor-this")
    with pytest.raises(Invalid) as raised:
        refuse(objections(wrong, catalogue(CPU), set()))
    assert [f.path for f in raised.value.fields] == ["model", "draft_model"]
    with pytest.raises(Refused):
        refuse(objections(spec(tier="low-cost"), catalogue(CPU), set()))
    refuse([])


def test_only_registered_models_are_looked_up() -> None:
    assert local_names(spec(model="local/one", draft_model="demo/two")) == ["one"]
