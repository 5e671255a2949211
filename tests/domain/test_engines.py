"""The engine's command line: what it says, what it never says, and when it is the same."""

import json
from dataclasses import replace

import pytest

from controlplane.domain.deployment import DeploymentSpec, Method, Speculation, Vocabulary
from controlplane.domain.engines import (
    EngineOrder,
    command,
    engine_for,
    render_hash,
    resolve,
    speculative_config,
)
from controlplane.domain.tiers import BUILT_IN, DeviceKind, Tier, merge
from controlplane.errors import Invalid

CPU = Tier("cpu", DeviceKind.CPU, kv_cache_gib=3)
H200 = merge(BUILT_IN)["low-cost"]
STANDARD = merge(BUILT_IN)["standard"]
PLAIN = DeploymentSpec("hello", "demo/smollm2-135m", "cpu")
PAIR = replace(PLAIN, draft_model="demo/smollm2-draft")


def _order(spec: DeploymentSpec, tier: Tier, *, heterogeneous: bool = False) -> EngineOrder:
    return EngineOrder(
        model_path="/m/target",
        served_name=spec.name,
        tier=tier,
        resolved=resolve(spec, tier, draft_says_heterogeneous=heterogeneous),
        draft_path="/m/draft" if spec.draft_model else None,
        context_length=spec.context_length,
        port=9000,
    )


def test_a_cpu_engine_is_started_as_measured() -> None:
    made = command(replace(_order(PLAIN, CPU), cores=(2, 3)))
    assert made.args == (
        "serve",
        "/m/target",
        "--served-model-name=hello",
        "--host=127.0.0.1",
        "--port=9000",
        "--shutdown-timeout=0",
        "--disable-access-log-for-endpoints=/health,/metrics,/v1/models",
        "--dtype=bfloat16",
        "--enforce-eager",
        "--max-num-seqs=8",
    )
    assert made.env["VLLM_CPU_KVCACHE_SPACE"] == "3"
    assert made.env["VLLM_CPU_OMP_THREADS_BIND"] == "2,3"
    assert made.env["HF_HUB_OFFLINE"] == "1"


def test_a_draft_becomes_a_speculative_config() -> None:
    assert speculative_config(_order(PAIR, CPU, heterogeneous=True)) == {
        "method": "draft_model",
        "model": "/m/draft",
        "num_speculative_tokens": 3,
        "use_heterogeneous_vocab": True,
    }
    args = command(_order(PAIR, H200)).args
    config = json.loads(args[-1].removeprefix("--speculative-config="))
    assert config == {"method": "draft_model", "model": "/m/draft", "num_speculative_tokens": 3}


def test_nothing_runs_ahead_where_nobody_asked() -> None:
    assert speculative_config(_order(PLAIN, CPU)) is None
    off = replace(PAIR, speculation=Speculation(method=Method.OFF))
    assert speculative_config(_order(off, CPU)) is None


def test_a_persons_choice_of_tokens_and_vocabulary_wins() -> None:
    spec = replace(PAIR, speculation=Speculation(tokens=5, vocabulary=Vocabulary.HETEROGENEOUS))
    config = speculative_config(_order(spec, CPU))
    assert config is not None
    assert (config["num_speculative_tokens"], config["use_heterogeneous_vocab"]) == (5, True)


def test_several_gpus_are_tensor_parallel() -> None:
    assert "--tensor-parallel-size=2" in command(_order(PLAIN, STANDARD)).args
    assert not any("tensor-parallel" in a for a in command(_order(PLAIN, H200)).args)


def test_a_persons_engine_arguments_replace_ours() -> None:
    order = replace(_order(PLAIN, CPU), args={"enforce-eager": False, "max-num-seqs": 2})
    args = command(order).args
    assert "--no-enforce-eager" in args
    assert "--max-num-seqs=2" in args
    assert "--enforce-eager" not in args


def test_text_of_a_person_is_never_an_argument_of_its_own() -> None:
    hostile = replace(_order(PLAIN, CPU), served_name="--api-key")
    assert "--served-model-name=--api-key" in command(hostile).args


def test_the_same_engine_elsewhere_has_the_same_hash() -> None:
    order = _order(PAIR, CPU)
    assert render_hash(order) == render_hash(replace(order, port=1, cores=(7,), host="0.0.0.0"))


@pytest.mark.parametrize(
    "change",
    [
        {"model_path": "/m/other"},
        {"draft_path": "/m/other"},
        {"context_length": 1024},
        {"args": {"max-num-seqs": 4}},
        {"served_name": "other"},
    ],
)
def test_another_engine_has_another_hash(change: dict[str, object]) -> None:
    order = _order(PAIR, CPU)
    assert render_hash(order) != render_hash(replace(order, **change))  # type: ignore[arg-type]


def test_the_newest_engine_of_a_device_is_the_default() -> None:
    assert engine_for(DeviceKind.CPU).version == "0.32.0"
    assert engine_for(DeviceKind.CUDA).package == "vllm"


def test_an_engine_version_that_we_do_not_know_is_refused_with_those_that_we_do() -> None:
    with pytest.raises(Invalid) as refused:
        engine_for(DeviceKind.CPU, "9.9.9")
    assert "0.32.0" in refused.value.hint
