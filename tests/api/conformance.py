"""Holds answers to the OpenAPI document: the status is declared, and the body has its schema."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import httpx2

_TYPES: Mapping[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "null": (type(None),),
    "object": (dict,),
    "array": (list,),
}


class Contract:
    """One OpenAPI document, asked about answers."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        self._schemas = document["components"]["schemas"]
        self._paths = [
            (re.compile(re.sub(r"\{[^}]+\}", "[^/]+", path)), item)
            for path, item in sorted(document["paths"].items(), key=lambda p: "{" in p[0])
        ]
        self.seen: set[tuple[str, int]] = set()

    def check(self, answer: httpx2.Response) -> None:
        """Fails when the document doesn't declare what `answer` is."""
        operation = self._operation(answer.request.method.lower(), answer.request.url.path)
        if operation is None:
            return
        where = f"{operation['operationId']} {answer.status_code}"
        self.seen.add((operation["operationId"], answer.status_code))
        declared = operation["responses"].get(str(answer.status_code))
        assert declared is not None, f"{where} is not declared"
        answer.read()
        if not answer.content:
            return
        media = answer.headers["content-type"].split(";")[0]
        assert media in declared.get("content", {}), f"{where}: {media} is not declared"
        if media.endswith("json"):
            faults = list(self.faults(answer.json(), declared["content"][media]["schema"], where))
            assert not faults, faults

    def _operation(self, method: str, path: str) -> Mapping[str, Any] | None:
        for form, item in self._paths:
            if form.fullmatch(path) and method in item:
                found: Mapping[str, Any] = item[method]
                return found
        return None

    def faults(self, value: Any, schema: Mapping[str, Any], where: str) -> list[str]:
        """Where `value` is not what `schema` says. Knows the words that our document uses."""
        if "$ref" in schema:
            return self.faults(value, self._schemas[schema["$ref"].rsplit("/", 1)[-1]], where)
        if "anyOf" in schema:
            tried = [self.faults(value, s, where) for s in schema["anyOf"]]
            return [] if any(not t for t in tried) else [f for t in tried for f in t]
        kind = schema.get("type")
        if kind is not None and not self._is(value, kind):
            return [f"{where}: {value!r} is no {kind}"]
        if "enum" in schema and value not in schema["enum"]:
            return [f"{where}: {value!r} is none of {schema['enum']}"]
        if "pattern" in schema and not re.search(schema["pattern"], value):
            return [f"{where}: {value!r} does not match {schema['pattern']}"]
        if kind == "array":
            rows = enumerate(value)
            return [f for n, v in rows for f in self.faults(v, schema["items"], f"{where}[{n}]")]
        return self._object(value, schema, where) if kind == "object" else []

    def _object(self, value: Any, schema: Mapping[str, Any], where: str) -> list[str]:
        known = schema.get("properties", {})
        found = [f"{where}: {k} is missing" for k in schema.get("required", []) if k not in value]
        other = schema.get("additionalProperties", not known)
        for key, inside in value.items():
            if key in known:
                found += self.faults(inside, known[key], f"{where}.{key}")
            elif isinstance(other, Mapping):
                found += self.faults(inside, other, f"{where}.{key}")
            elif not other:
                found.append(f"{where}: {key} is not declared")
        return found

    @staticmethod
    def _is(value: Any, kind: str) -> bool:
        if isinstance(value, bool):
            return kind == "boolean"
        return isinstance(value, _TYPES[kind])
