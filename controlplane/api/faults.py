"""What is wrong with a value, in a sentence: a pattern is for programs, so people get its rule."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from controlplane.domain.naming import NAME_FORM, NAME_RULE
from controlplane.errors import FieldError

KEY_NAME = r"^[^\x00-\x1f\x7f]{1,64}$"
NAME = f"^{NAME_FORM.pattern}$"
DURATION = "^[0-9]{1,30}[smhd]$"
NAME_PART = "^[a-z0-9._-]{1,40}$"
MODEL_PART = r"^[\x21-\x7e]+$"
LABEL_PART = r"^[^\x00-\x1f\x7f]+$"
_RULES: Mapping[str, str] = {
    KEY_NAME: "A key's name is 1-64 characters without control characters",
    NAME: f"A name is {NAME_RULE}",
    DURATION: "A duration is a whole number and a unit: 90s, 15m, 1h or 1d",
    NAME_PART: "It is 1-40 of a-z 0-9 . _ -",
    MODEL_PART: "A model's ID is letters, digits and marks, without blanks",
    LABEL_PART: "A label is key or key=value, without control characters",
}


def fields_of(errors: Sequence[Mapping[str, Any]], *, skip: int = 0) -> tuple[FieldError, ...]:
    """pydantic's findings with their places (less the first `skip` parts), in a person's words,
    without a full stop."""
    return tuple(
        FieldError(".".join(str(p)[:60] for p in e["loc"][skip:]), str(e["type"]), _detail(e))
        for e in errors
    )


def _detail(error: Mapping[str, Any]) -> str:
    pattern = (error.get("ctx") or {}).get("pattern")
    if pattern is not None:
        return _RULES.get(str(pattern), "It has another form")
    return str(error["msg"]).removeprefix("Value error, ").rstrip(".")
