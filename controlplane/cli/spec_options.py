"""The options that say what a deployment is, and the JSON that they make."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from controlplane.domain.engine_args import ALLOWED_ARGS
from controlplane.errors import FieldError, Invalid

Model = Annotated[
    str, typer.Option("--model", "-m", help="org/name, the hub's page, demo/NAME or local/NAME.")
]
ModelChange = Annotated[str | None, typer.Option("--model", "-m", help="Another target.")]
Tier = Annotated[str | None, typer.Option("--tier", "-t", help="Hardware: see slipstream tiers.")]
Draft = Annotated[
    str | None, typer.Option("--draft", "-d", help="The model that runs ahead (none: without).")
]
Tokens = Annotated[str | None, typer.Option(help="Drafted tokens a step: auto or 1-16.")]
MethodName = Annotated[
    str | None,
    typer.Option("--method", help="auto, draft_model, eagle3, mtp, ngram, suffix or off."),
]
Vocabulary = Annotated[str | None, typer.Option(help="same or heterogeneous.")]
ContextLength = Annotated[
    str | None, typer.Option(help="Tokens of prompt and answer together (none: the model's own).")
]
ScaleDown = Annotated[str | None, typer.Option(help="idle:1h, timer:8h or never.")]
Revision = Annotated[
    str | None, typer.Option(help="Of the model: a branch, tag or commit (none: the newest).")
]
Replicas = Annotated[int | None, typer.Option(help="How many run while awake.")]
Label = Annotated[list[str] | None, typer.Option("--label", "-l", help="key=value; repeatable.")]
WakeMode = Annotated[str | None, typer.Option(help="hold or reject requests to a sleeper.")]
WakeDeadline = Annotated[str | None, typer.Option(help="How long a request is held, as 15m.")]
EngineVersion = Annotated[str | None, typer.Option(help="vLLM's version (none: the newest).")]
EngineArg = Annotated[
    list[str] | None, typer.Option(help="key=value for the engine, as max-num-seqs=8; repeatable.")
]


def spec_json(
    *,
    model: str | None = None,
    tier: str | None = None,
    draft: str | None = None,
    tokens: str | None = None,
    method: str | None = None,
    vocabulary: str | None = None,
    context_length: str | None = None,
    scale_down: str | None = None,
    revision: str | None = None,
    replicas: int | None = None,
    label: Sequence[str] | None = None,
    wake_mode: str | None = None,
    wake_deadline: str | None = None,
    engine_version: str | None = None,
    engine_arg: Sequence[str] | None = None,
) -> dict[str, Any]:
    """The fields that were given, and no others, as the API takes them: `none` becomes null."""
    flat = {
        "model": model,
        "tier": tier,
        "draft_model": draft,
        "context_length": None if context_length is None else _number(context_length),
        "revision": revision,
    }
    made: dict[str, Any] = {k: None if v == "none" else v for k, v in flat.items() if v is not None}
    parts: dict[str, dict[str, Any]] = {
        "speculation": {
            "method": method,
            "tokens": None if tokens is None else _number(tokens),
            "vocabulary": vocabulary,
        },
        "wake": {"mode": wake_mode, "deadline": wake_deadline},
        "replicas": {"min": replicas, "max": replicas},
        "labels": dict(_pair("--label", text) for text in label or ()),
    }
    for name, values in parts.items():
        given = {k: v for k, v in values.items() if v is not None}
        if given:
            made[name] = given
    if scale_down is not None:
        made["scale_down"] = _scale_down(scale_down)
    engine = _engine(engine_version, engine_arg or ())
    return made | ({"engine": engine} if engine else {})


def _engine(version: str | None, args: Sequence[str]) -> dict[str, Any]:
    made: dict[str, Any] = {}
    if version is not None:
        made["version"] = None if version == "none" else version
    if args:
        pairs = [_pair("--engine-arg", text) for text in args]
        made["args"] = {k.removeprefix("--"): engine_value(k, v) for k, v in pairs}
    return made


def engine_value(name: str, text: str) -> str | int | float | bool:
    """`text` as the type that the engine's argument has. What is no such value stays the text
    that it is, and is refused with its place where the spec is read."""
    kind = ALLOWED_ARGS.get(name.removeprefix("--"), str)
    if kind is bool:
        return {"true": True, "false": False}.get(text.lower(), text)
    try:
        return kind(text) if kind in (int, float) else text
    except ValueError:
        return text


def _scale_down(text: str) -> dict[str, Any]:
    policy, colon, after = text.partition(":")
    if policy == "never" and not colon:
        return {"policy": "never", "after": None}
    if policy not in ("idle", "timer") or (colon and not after):
        raise _invalid("--scale-down", "--scale-down is idle:1h, timer:8h or never.")
    return {"policy": policy, **({"after": after} if after else {})}


def _number(text: str) -> int | str:
    return int(text) if re.fullmatch(r"-?[0-9]{1,18}", text) else text


def _pair(option: str, text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not key or not equals:
        raise _invalid(option, f"{option} takes key=value.")
    return key, value


def _invalid(option: str, message: str) -> Invalid:
    return Invalid("usage", message, fields=(FieldError(option, "form", message),))
