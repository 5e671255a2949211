"""With the demo draft running ahead, what the real engine samples is still the target's.

The measure is the mean log-probability that the target gives to the tokens that were sampled.
At a temperature of 1 its expectation is minus the target's own entropy, draft or no draft; the
fault that our plugin mends samples tokens that the target finds absurd.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from statistics import fmean

import pytest

from controlplane.demo_models.make import heldout_prompts
from controlplane.domain.deployment import Method, Resolved
from controlplane.domain.engines import EngineOrder
from controlplane.domain.tiers import DeviceKind, Tier
from controlplane.engine_envs import EngineEnv
from tests.engine.serving import Serving, free_port, serve, wait_until_all_answer

pytestmark = [pytest.mark.engine, pytest.mark.timeout(900)]

PROMPTS, TOKENS, TEMPERATURE = heldout_prompts()[:6], 24, 0.8
MENDED = "Slipstream mended sampling"
# The fault reads uninitialised memory, which now and then holds something harmless. glibc fills
# memory that was freed with this byte, and new memory with its complement: as temperatures
# that reads 3.0 or -1.5. What is right reads no such memory and does not care.
UNINITIALISED = {"MALLOC_PERTURB_": "64"}
NEAR, FAR = 0.8, 2.0
_CPU = Tier("cpu", DeviceKind.CPU, kv_cache_gib=1)


@pytest.fixture(scope="module")
def engines(
    engine_env: EngineEnv, engine_home: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Serving]]:
    """Three engines at once, because most of a start is waiting for imports: with the draft,
    with the draft and without our plugin, and without a draft."""
    logs = tmp_path_factory.mktemp("engines")
    models = engine_home / "models" / "demo"
    cores = sorted(os.sched_getaffinity(0))
    speculating = EngineOrder(
        model_path=str(models / "smollm2-135m"),
        served_name="hello",
        tier=_CPU,
        resolved=Resolved(Method.DRAFT_MODEL, 3, heterogeneous=True, engine=engine_env.version),
        draft_path=str(models / "smollm2-draft"),
        context_length=1024,
    )
    alone = replace(speculating, resolved=Resolved(Method.OFF), draft_path=None)
    orders = {"mended": speculating, "faulty": speculating, "alone": alone}
    with ExitStack() as stack:
        running = {}
        for n, (name, order) in enumerate(orders.items()):
            placed = replace(order, port=free_port(), cores=(cores[n % len(cores)],))
            more = UNINITIALISED | ({"VLLM_PLUGINS": ""} if name == "faulty" else {})
            running[name] = stack.enter_context(
                serve(engine_env, placed, logs / f"{name}.log", **more)
            )
        wait_until_all_answer(list(running.values()))
        yield running


def sampled(engine: Serving) -> float:
    values = engine.log_probabilities(PROMPTS, temperature=TEMPERATURE, tokens=TOKENS)
    assert len(values) > len(PROMPTS) * TOKENS // 2
    return fmean(values)


def test_text_sampled_with_a_draft_is_as_likely_as_without_one_only_thanks_to_the_plugin(
    engines: dict[str, Serving],
) -> None:
    with ThreadPoolExecutor(len(engines)) as pool:
        means = dict(zip(engines, pool.map(sampled, engines.values()), strict=True))
    assert abs(means["mended"] - means["alone"]) < NEAR, means
    assert means["faulty"] < means["alone"] - FAR, means


def test_the_plugin_says_in_each_engine_process_that_it_mended_something(
    engines: dict[str, Serving],
) -> None:
    lines = [line for line in engines["mended"].log.splitlines() if MENDED in line]
    assert any("(EngineCore" in line for line in lines), lines
    assert any("Worker" in line for line in lines), lines
    assert MENDED not in engines["faulty"].log


def test_the_draft_counters_move_while_a_pair_serves(engines: dict[str, Serving]) -> None:
    counter = "vllm:spec_decode_num_{}_total"
    pair = engines["mended"]
    before = {c: pair.metric(counter.format(c)) for c in ("drafts", "accepted_tokens")}
    pair.log_probabilities(PROMPTS[:1], temperature=0.0, tokens=TOKENS)
    for name, value in before.items():
        assert pair.metric(counter.format(name)) > value, name
    assert engines["alone"].metric(counter.format("drafts")) == 0


def test_the_core_that_a_command_line_names_is_the_one_that_the_engine_takes(
    engines: dict[str, Serving],
) -> None:
    first = sorted(os.sched_getaffinity(0))[0]
    assert f"local_rank=0, core ids=[{first}]" in engines["mended"].log
