"""Request bodies: read up to a limit, and taken as JSON exactly as it is written.

What two readers could understand differently (a key twice, NaN, half a surrogate pair) is
refused here, so that nothing behind it has to wonder.
"""

from __future__ import annotations

import json
import math
from collections.abc import AsyncIterator
from typing import Any

from controlplane.errors import AppError, Kind

DEEPEST = 32


def malformed(code: str, message: str) -> AppError:
    return AppError(code, message, hint="Send one JSON object as UTF-8.", kind=Kind.MALFORMED)


def too_large(limit: int) -> AppError:
    return AppError(
        "body_too_large",
        f"The body is larger than {limit} bytes.",
        hint="A spec takes a few hundred.",
        kind=Kind.TOO_LARGE,
    )


async def read_limited(chunks: AsyncIterator[bytes], declared: str | None, limit: int) -> bytes:
    """The whole body. Raises a TOO_LARGE error as soon as it is known to be above `limit`."""
    if declared is not None and declared.isascii() and declared.isdigit() and int(declared) > limit:
        raise too_large(limit)
    body = bytearray()
    async for chunk in chunks:
        body += chunk
        if len(body) > limit:
            raise too_large(limit)
    return bytes(body)


def parse_json(body: bytes) -> Any:
    """The value that `body` states. Raises a MALFORMED error for anything that is not plain
    JSON in UTF-8, or is nested deeper than 32."""
    if not body.strip():
        raise malformed("empty_body", "A JSON body is expected.")
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError as e:
        raise malformed("invalid_utf8", "The body is not UTF-8.") from e
    try:
        value = json.loads(
            text,
            parse_constant=_refuse_constant,
            parse_float=_finite,
            object_pairs_hook=_unique,
        )
    except RecursionError as e:
        raise _too_deep() from e
    except json.JSONDecodeError as e:
        where = f"line {e.lineno}, column {e.colno}"
        raise malformed("invalid_json", f"The body is not JSON: {e.msg} at {where}.") from e
    except ValueError as e:  # a whole number of thousands of digits
        raise malformed("invalid_json", "A number in the body is out of range.") from e
    _check_texts(value)
    return value


def _too_deep() -> AppError:
    return malformed("too_deep", f"The body is nested deeper than {DEEPEST}.")


def _refuse_constant(name: str) -> float:
    raise malformed("invalid_json", f"The body is not JSON: {name} is no value there.")


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise malformed("invalid_json", "A number in the body is out of range.")
    return number


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise malformed("duplicate_key", "The body has the same key twice in one object.")
    return found


def _check_texts(value: Any) -> None:
    """No NUL, which the database can't store, and no half of a surrogate pair."""
    stack: list[tuple[Any, int]] = [(value, 1)]
    while stack:
        here, depth = stack.pop()
        if depth > DEEPEST:
            raise _too_deep()
        if isinstance(here, dict):
            stack.extend((v, depth + 1) for v in here.values())
            stack.extend((k, depth) for k in here)
        elif isinstance(here, list):
            stack.extend((v, depth + 1) for v in here)
        elif isinstance(here, str) and not _storable(here):
            raise malformed("invalid_text", "A text in the body holds a character that is none.")


def _storable(text: str) -> bool:
    return "\0" not in text and not any("\ud800" <= c <= "\udfff" for c in text)
