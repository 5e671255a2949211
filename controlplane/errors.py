"""The one error type that crosses rooms. It is made where the fact is known and
translated once at each edge: REST, `/v1`, the CLI."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Kind(StrEnum):
    """What sort of "no" this is. Edges map it to an HTTP status or an exit code."""

    MALFORMED = "malformed"  # 400: not readable at all
    UNAUTHENTICATED = "unauthenticated"  # 401
    FORBIDDEN = "forbidden"  # 403
    NOT_FOUND = "not_found"  # 404
    CONFLICT = "conflict"  # 409: another thing stands in the way
    REFUSED = "refused"  # 409: understood, and it cannot be here
    STALE = "stale"  # 412: the caller saw an older generation
    TOO_LARGE = "too_large"  # 413
    INVALID = "invalid"  # 422: readable, and a value is wrong
    UNAVAILABLE = "unavailable"  # 503: a part that we need does not answer


@dataclass(frozen=True, slots=True)
class FieldError:
    """One wrong value: where (`scale_down.after`), a stable code, and a sentence."""

    path: str
    code: str
    detail: str


class AppError(Exception):
    """A refusal with a code for programs, a sentence for people, and a way out.

    `code` is stable snake_case; `message` is one sentence; `hint` says what to do,
    or is empty when there is nothing to do.
    """

    kind: Kind = Kind.REFUSED

    def __init__(
        self,
        code: str,
        message: str,
        *,
        hint: str = "",
        fields: tuple[FieldError, ...] = (),
        kind: Kind | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.hint = hint
        self.fields = fields
        if kind is not None:
            self.kind = kind


class Invalid(AppError):
    kind = Kind.INVALID


class NotFound(AppError):
    kind = Kind.NOT_FOUND


class Conflict(AppError):
    kind = Kind.CONFLICT


class Refused(AppError):
    kind = Kind.REFUSED


class Stale(AppError):
    kind = Kind.STALE


class Unavailable(AppError):
    kind = Kind.UNAVAILABLE


class Unauthenticated(AppError):
    kind = Kind.UNAUTHENTICATED


class Forbidden(AppError):
    kind = Kind.FORBIDDEN
