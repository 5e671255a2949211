"""Shapes that several nouns share."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Generic, TypeVar

from pydantic import BaseModel, Field

Item = TypeVar("Item")


class FieldProblem(BaseModel):
    """One wrong value."""

    path: str = Field(description="Where it is, as `scale_down.after`.")
    code: str
    detail: str


class Problem(BaseModel):
    """Every error's shape (RFC 9457), sent as `application/problem+json`."""

    type: str = Field(description="`urn:slipstream:problem:` and the code.")
    title: str
    status: int
    code: str = Field(description="Stable, for programs.")
    detail: str = Field(description="One sentence, for people.")
    hint: str = Field(description="What to do about it; empty where nothing can be done.")
    errors: list[FieldProblem] = Field(description="Each value that is wrong.")


class Listing(BaseModel, Generic[Item]):
    """One page. `next_cursor`, sent back as `cursor`, gives the next; null on the last."""

    items: list[Item]
    next_cursor: str | None


def moment(at: datetime) -> str:
    """UTC with `Z`, as every time in an answer."""
    return at.astimezone(UTC).isoformat().replace("+00:00", "Z")


def moment_or_none(at: datetime | None) -> str | None:
    return None if at is None else moment(at)
