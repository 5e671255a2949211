"""A `vllm serve` command line, read into a spec. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from controlplane.cli.spec_options import engine_value
from controlplane.domain.engine_args import ALLOWED_ARGS
from controlplane.domain.naming import is_name
from controlplane.errors import Invalid

_SHORT = {"-tp": "tensor-parallel-size", "-pp": "pipeline-parallel-size",
          "-sc": "speculative-config",
          "-dp": "data-parallel-size", "-q": "quantization", "-cc": "compilation-config",
          "-O": "optimization-level", "-n": "nnodes", "-r": "node-rank"}  # fmt: skip
_OURS = {
    "host": "the gateway's one address serves it",
    "port": "a free port is taken",
    "uds": "the gateway's one address serves it",
    "api-key": "keys are the gateway's: slipstream keys create",
    "root-path": "the gateway's one address serves it",
    "ssl-keyfile": "TLS ends before the gateway",
    "ssl-certfile": "TLS ends before the gateway",
    "tensor-parallel-size": "the tier says how many GPUs",
    "pipeline-parallel-size": "one replica runs on one machine",
    "data-parallel-size": "use replicas",
    "tokenizer": "the model's own is used",
    "served-model-name": "a deployment has one name",
    "hf-token": "set HF_TOKEN where the server runs",
    "download-dir": "weights go to the data directory",
    "trust-remote-code": "code from a model's folder never runs",
    "allowed-local-media-path": "no path of the machine is opened to callers",
}
_SUFFIX = {"k": 10**3, "m": 10**6, "g": 10**9, "K": 2**10, "M": 2**20, "G": 2**30}
_SPECULATION = {"method", "model", "num_speculative_tokens", "use_heterogeneous_vocab"}
_PROGRAM = re.compile(r"(?:.*/)?vllm")
_MODULE = "vllm.entrypoints.openai.api_server"
_FLAGS = {"trust-remote-code", "disable-log-requests", "disable-log-stats", "enable-lora",
          "enable-expert-parallel", "enable-log-requests", "headless", "async-scheduling",
          "enable-sleep-mode", "disable-uvicorn-access-log"}  # fmt: skip


@dataclass
class Reading:
    """What was read: the spec, and what it can't hold, each with why."""

    spec: dict[str, Any] = field(default_factory=dict)
    left_out: list[tuple[str, str]] = field(default_factory=list)


def read_command(words: Sequence[str]) -> Reading:
    """The spec of a `vllm serve ...` line. Raises Invalid where it is none, or names no model.
    Values of what is left out are not repeated: a key may be among them."""
    reading = Reading()
    rest = _after_program(list(words), reading)
    model, names, speculation = None, list[str](), dict[str, Any]()
    for name, value in _options(rest, reading):
        if name in ("", "model"):
            model = value
        elif name == "served-model-name":
            names += (value or "").split()
        elif name == "speculative-config" or name.startswith("speculative-config."):
            speculation |= _speculation(name, value)
        else:
            _take(reading, name, value)
    if not model:
        raise Invalid("no_model", "The command names no model.", hint="As: vllm serve org/name")
    reading.spec = {"name": _name(names, model), "model": model, **reading.spec}
    reading.left_out += [("--served-model-name", f"{_OURS['served-model-name']}")] * (
        len(names) > 1
    )
    _add_speculation(reading, speculation)
    return reading


def _after_program(words: list[str], reading: Reading) -> list[str]:
    while words and re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*=.*", words[0], re.DOTALL):
        name = words.pop(0).partition("=")[0]
        reading.left_out.append((name, "the engine's environment is Slipstream's own"))
    if words and _PROGRAM.fullmatch(words[0]) and words[1:2] == ["serve"]:
        return words[2:]
    if words[1:3] == ["-m", _MODULE] and "python" in words[0]:
        return words[3:]
    raise Invalid(
        "not_vllm_serve",
        "This is no vllm serve command.",
        hint="As: slipstream import -- vllm serve org/name --max-model-len 8192",
    )


def _options(words: list[str], reading: Reading) -> Iterator[tuple[str, str | None]]:
    """Name and value of each; the model, which needs no name, under an empty one."""
    while words:
        word = words.pop(0)
        if not word.startswith("-") or word == "-":
            yield "", word
            continue
        name, equals, value = word.partition("=")
        short = next((s for s in sorted(_SHORT, key=len, reverse=True) if name == s), None)
        if short is None and not name.startswith("--"):
            glued = next((s for s in _SHORT if name.startswith(s)), None)
            if glued is None:
                reading.left_out.append((name, "it is no argument of vllm serve"))
                continue
            yield _SHORT[glued], name[len(glued) :]
            continue
        plain = _SHORT[short] if short else name[2:].replace("_", "-")
        if plain.startswith("speculative-config."):
            plain = name[2:]
        if equals:
            yield plain, value
            continue
        taken: list[str] = []
        while words and not _is_option(words[0]) and _takes_more(plain, taken):
            taken.append(words.pop(0))
        yield plain, " ".join(taken) if taken else None


def _is_option(word: str) -> bool:
    return word.startswith("-") and not re.fullmatch(r"-[0-9.]+", word)


def _takes_more(name: str, taken: Sequence[str]) -> bool:
    bare = name.removeprefix("no-")
    if name in _FLAGS or ALLOWED_ARGS.get(bare) is bool:
        return False
    return not taken or name == "served-model-name"


def _take(reading: Reading, name: str, value: str | None) -> None:
    bare = name.removeprefix("no-")
    if name == "max-model-len":
        reading.spec["context_length"] = _tokens(value or "")
    elif name == "revision":
        reading.spec["revision"] = value or ""
    elif ALLOWED_ARGS.get(bare) is bool:
        on = (value is None or value.lower() == "true") is (name == bare)
        reading.spec.setdefault("engine", {}).setdefault("args", {})[bare] = on
    elif name in ALLOWED_ARGS and value is not None:
        args = reading.spec.setdefault("engine", {}).setdefault("args", {})
        args[name] = engine_value(name, value)
    else:
        why = _OURS.get(name, "Slipstream has no place for it")
        shown = re.sub(r"[^A-Za-z0-9._-]", "?", name)[:60]
        reading.left_out.append((f"--{shown}", why))


def _tokens(text: str) -> int | str:
    found = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)([kKmMgG]?)", text)
    if not found:
        return text
    return int(float(found[1]) * _SUFFIX.get(found[2], 1))


def _speculation(name: str, value: str | None) -> dict[str, Any]:
    _, dot, key = name.partition(".")
    if dot:
        return {key.replace("-", "_"): _json(value)}
    config = _json(value)
    if not isinstance(config, dict):
        raise Invalid("invalid_speculative_config", "--speculative-config is no JSON object.")
    return config


def _json(value: str | None) -> Any:
    try:
        return json.loads(value or "")
    except (ValueError, RecursionError):
        return value


def _add_speculation(reading: Reading, config: dict[str, Any]) -> None:
    if not config:
        return
    made: dict[str, Any] = {}
    if isinstance(draft := config.get("model"), str) and draft != "ngram":
        reading.spec["draft_model"] = draft
    if (method := config.get("method")) is not None:
        made["method"] = method
    elif "model" not in config or config["model"] == "ngram":
        made["method"] = "ngram"
    if (tokens := config.get("num_speculative_tokens")) is not None:
        made["tokens"] = tokens
    if config.get("use_heterogeneous_vocab"):
        made["vocabulary"] = "heterogeneous"
    if made:
        reading.spec["speculation"] = made
    reading.left_out += [
        (
            f"speculative-config.{re.sub('[^A-Za-z0-9._-]', '?', key)[:60]}",
            "it follows from the method",
        )
        for key in config
        if key not in _SPECULATION
    ]


def _name(names: Sequence[str], model: str) -> str:
    """The served name where it may be one, else what the model's own name makes."""
    for text in (*names, model.rstrip("/").rpartition("/")[2]):
        made = re.sub(r"[^a-z0-9._-]+", "-", text.lower()).strip("._-")[:40].strip("._-")
        if is_name(made):
            return made
    return "my-model"
