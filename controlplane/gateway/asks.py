"""Reading a request body: only what routing needs, and nothing that an engine could read in
another way. Pure."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from controlplane.gateway.answers import Answer, Answered


@dataclass(frozen=True, slots=True)
class Ask:
    """A request for a model. `body` goes on to the engine as it came."""

    model: str
    stream: bool
    body: bytes = field(repr=False)


def read_ask(body: bytes) -> Ask:
    """The model that `body` asks for. Raises Answered (400) when that can't be told for sure:
    no JSON object in UTF-8, no `model`, two of them, a value that JSON doesn't have."""
    try:
        found = json.loads(
            body.decode("utf-8"), object_pairs_hook=_Pairs, parse_constant=_no_constant
        )
    except (ValueError, RecursionError) as e:
        raise _refused("invalid_json", "The body is not JSON that can be read.") from e
    if not isinstance(found, _Pairs):
        raise _refused("invalid_json", "The body must be a JSON object.")
    model = _single(found.pairs, "model")
    if model is None:
        raise _refused("missing_model", "Say which model: the name of a deployment.", "model")
    if not isinstance(model, str) or not model:
        raise _refused("invalid_model", "model must be the name of a deployment.", "model")
    return Ask(model, _single(found.pairs, "stream") is True, body)


class _Pairs:
    """A JSON object as it was written, so that a key that stands twice is seen."""

    __slots__ = ("pairs",)

    def __init__(self, pairs: list[tuple[str, Any]]) -> None:
        self.pairs = pairs


def _single(pairs: list[tuple[str, Any]], key: str) -> Any:
    values = [value for k, value in pairs if k == key]
    if len(values) > 1:
        raise _refused("duplicate_field", f"{key} stands twice in the body.", key)
    return values[0] if values else None


def _no_constant(text: str) -> Any:
    raise ValueError(f"JSON has no {text}")


def _refused(code: str, message: str, param: str | None = None) -> Answered:
    return Answered(Answer(400, code, message, param))
