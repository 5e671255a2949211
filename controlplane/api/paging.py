"""Cursors: where a page ended, as opaque text."""

from __future__ import annotations

import base64
import binascii
import json
from datetime import datetime
from typing import Annotated, Any

from pydantic import Field

from controlplane.errors import FieldError, Invalid
from controlplane.persistence.deployments import Position

Limit = Annotated[int, Field(ge=1, le=200, description="The most that one page holds.")]
Cursor = Annotated[str, Field(max_length=200, description="`next_cursor` of the page before.")]


def encode_position(position: Position | None) -> str | None:
    if position is None:
        return None
    return _encode([position.created_at.isoformat(), position.id])


def decode_position(cursor: str | None) -> Position | None:
    """Raises Invalid for a cursor that no page of ours gave."""
    if cursor is None:
        return None
    value = _decode(cursor)
    try:
        at, last_id = value
        created_at = datetime.fromisoformat(at)
        if created_at.tzinfo is None or not isinstance(last_id, str) or "\0" in last_id:
            raise ValueError
    except (TypeError, ValueError) as e:
        raise _invalid() from e
    return Position(created_at, last_id)


def encode_number(number: int | None) -> str | None:
    return None if number is None else _encode(number)


def decode_number(cursor: str | None) -> int | None:
    """Raises Invalid for a cursor that no page of ours gave."""
    if cursor is None:
        return None
    value = _decode(cursor)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 < value < 2**63:
        raise _invalid()
    return value


def _encode(value: Any) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")


def _decode(cursor: str) -> Any:
    try:
        padded = cursor.encode("ascii") + b"=" * (-len(cursor) % 4)
        return json.loads(base64.b64decode(padded, altchars=b"-_", validate=True))
    except (binascii.Error, ValueError, RecursionError) as e:
        raise _invalid() from e


def _invalid() -> Invalid:
    detail = "This cursor is none that a page gave."
    return Invalid(
        "invalid_cursor",
        detail,
        hint="Send next_cursor back as it came, or leave cursor out to begin anew.",
        fields=(FieldError("cursor", "cursor", detail),),
    )
