"""Where errors become HTTP: `application/problem+json`, whoever raised them."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse

from controlplane.api.faults import fields_of
from controlplane.api.schemas.common import Problem
from controlplane.errors import AppError, FieldError, Kind

MEDIA_TYPE = "application/problem+json"
STATUS: Mapping[Kind, HTTPStatus] = {
    Kind.MALFORMED: HTTPStatus.BAD_REQUEST,
    Kind.UNAUTHENTICATED: HTTPStatus.UNAUTHORIZED,
    Kind.FORBIDDEN: HTTPStatus.FORBIDDEN,
    Kind.NOT_FOUND: HTTPStatus.NOT_FOUND,
    Kind.CONFLICT: HTTPStatus.CONFLICT,
    Kind.REFUSED: HTTPStatus.CONFLICT,
    Kind.STALE: HTTPStatus.PRECONDITION_FAILED,
    Kind.TOO_LARGE: HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    Kind.INVALID: HTTPStatus.UNPROCESSABLE_ENTITY,
    Kind.UNAVAILABLE: HTTPStatus.SERVICE_UNAVAILABLE,
}
_RETRY_SECONDS = 5


def problem(
    status: int,
    code: str,
    detail: str,
    *,
    hint: str = "",
    fields: tuple[FieldError, ...] = (),
    headers: Mapping[str, str] | None = None,
) -> JSONResponse:
    """The answer for one error."""
    body = {
        "type": f"urn:slipstream:problem:{code}",
        "title": HTTPStatus(status).phrase,
        "status": int(status),
        "code": code,
        "detail": detail,
        "hint": hint,
        "errors": [{"path": f.path, "code": f.code, "detail": f.detail} for f in fields],
    }
    return JSONResponse(body, status, headers=dict(headers or {}), media_type=MEDIA_TYPE)


def problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Declares that an endpoint may answer with these statuses, each as a problem."""
    return {
        int(status): {
            "description": HTTPStatus(status).phrase,
            "content": {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}},
        }
        for status in sorted({*statuses, 500})
    }


def install(app: FastAPI) -> None:
    """Make every error of `app` a problem."""
    app.add_exception_handler(AppError, _app_error)
    app.add_exception_handler(RequestValidationError, _validation_error)
    app.add_exception_handler(HTTPException, _http_error)
    app.add_exception_handler(Exception, _unexpected)


async def _app_error(_request: Request, error: Exception) -> JSONResponse:
    if not isinstance(error, AppError):
        raise error
    headers = {}
    if error.kind is Kind.UNAUTHENTICATED:
        headers["WWW-Authenticate"] = "Bearer"
    if error.kind is Kind.UNAVAILABLE:
        headers["Retry-After"] = str(_RETRY_SECONDS)
    return problem(
        STATUS[error.kind],
        error.code,
        error.message,
        hint=error.hint,
        fields=error.fields,
        headers=headers,
    )


async def _validation_error(_request: Request, error: Exception) -> JSONResponse:
    """Of parameters: bodies are read by the domain."""
    if not isinstance(error, RequestValidationError):
        raise error
    fields = fields_of(error.errors(), skip=1)
    first = fields[0] if fields else FieldError("", "invalid", "A parameter is wrong.")
    return problem(
        HTTPStatus.UNPROCESSABLE_ENTITY,
        "invalid_parameter",
        f"The parameter {first.path} is wrong: {first.detail}.",
        hint="See errors[] for each parameter that is wrong, and /docs for what there is.",
        fields=fields,
    )


async def _http_error(_request: Request, error: Exception) -> JSONResponse:
    """What the framework itself answers: no such path, or not with this method."""
    if not isinstance(error, HTTPException):
        raise error
    known = {
        404: ("no_such_path", "There is nothing at this path.", "See /docs for what there is."),
        405: ("method_not_allowed", "This path does not take this method.", "See /docs."),
    }
    code, detail, hint = known.get(
        error.status_code, ("request_refused", "The request can't be handled.", "See /docs.")
    )
    return problem(error.status_code, code, detail, hint=hint, headers=error.headers)


async def _unexpected(_request: Request, _error: Exception) -> JSONResponse:
    """A fault of ours. What it was goes to the log and not to the caller."""
    return problem(
        HTTPStatus.INTERNAL_SERVER_ERROR,
        "internal_error",
        "Something went wrong inside Slipstream.",
        hint="The api process's log says what. Nothing was half done: try again.",
    )


__all__ = ["MEDIA_TYPE", "Problem", "install", "problem", "problems"]
