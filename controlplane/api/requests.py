"""Request bodies: how they are documented, and how the small ones are read.

Specs are read by the domain. The others are small enough that their schema says it all; it is
applied strictly, so that nothing is coerced.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import timedelta
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic.json_schema import models_json_schema

from controlplane.api.faults import fields_of
from controlplane.domain.durations import parse_duration
from controlplane.errors import FieldError, Invalid

Asked = TypeVar("Asked", bound=BaseModel)
_REF = "#/components/schemas/{model}"
_documented: dict[str, type[BaseModel]] = {}


def body_of(model: type[BaseModel], *media_types: str) -> dict[str, Any]:
    """OpenAPI's words for an endpoint whose body is a `model`."""
    _documented[model.__name__] = model
    schema = {"$ref": _REF.format(model=model.__name__)}
    content = {media: {"schema": schema} for media in media_types or ("application/json",)}
    return {"requestBody": {"required": True, "content": content}}


def request_schemas() -> Mapping[str, Any]:
    """The schemas of all bodies that `body_of` named, by their names in the document."""
    pairs = [(model, "validation") for model in _documented.values()]
    _, found = models_json_schema(pairs, ref_template=_REF)  # type: ignore[arg-type]
    schemas: Mapping[str, Any] = found["$defs"]
    return schemas


def read_request(model: type[Asked], raw: Any) -> Asked:
    """`raw` as a `model`. Raises Invalid with a path for each wrong value."""
    try:
        return model.model_validate_json(json.dumps(raw), strict=True)
    except ValidationError as e:
        fields = fields_of(e.errors(include_url=False, include_input=False))
        raise Invalid(
            "invalid_request",
            f"The request is wrong at {fields[0].path or 'its root'}: {fields[0].detail}.",
            hint="See errors[] for each value that is wrong.",
            fields=fields,
        ) from e


def read_duration(path: str, text: str | None) -> timedelta | None:
    try:
        return None if text is None else parse_duration(text)
    except ValueError as e:
        raise Invalid("invalid_request", str(e), fields=(FieldError(path, "form", str(e)),)) from e
