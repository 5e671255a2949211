"""/docs: the OpenAPI document as a page that needs no script and no other site."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from html import escape
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from controlplane.api.pages import page

router = APIRouter(include_in_schema=False)
_INTRODUCTION = (
    "<p>Programs send <code>Authorization: Bearer KEY</code>. The same in full, for tools: "
    '<a href="/openapi.json">/openapi.json</a>.</p>'
)
_METHODS = ("get", "post", "patch", "put", "delete")


@router.get("/")
async def front() -> Response:
    return RedirectResponse("/docs", status_code=307)


@router.get("/docs")
async def docs(request: Request) -> HTMLResponse:
    """The page is made once for each process: the document doesn't change while it runs."""
    made = getattr(request.app.state, "docs_page", None)
    if made is None:
        made = request.app.state.docs_page = render(request.app.openapi())
    return HTMLResponse(made)


def render(document: Mapping[str, Any]) -> str:
    """The whole page for an OpenAPI document."""
    info = document["info"]
    by_tag: dict[str, list[str]] = {}
    for path, item in document["paths"].items():
        for method in _METHODS:
            if method in item:
                tag = item[method].get("tags", ["other"])[0]
                by_tag.setdefault(tag, []).append(_operation(method, path, item[method]))
    parts = [
        f"<p>{escape(info.get('description', ''))}</p>",
        _INTRODUCTION,
    ]
    for tag, operations in by_tag.items():
        parts += [f"<h2>{escape(tag)}</h2>", *operations]
    parts.append("<h2>Schemas</h2>")
    parts += [_schema(n, s) for n, s in document["components"]["schemas"].items()]
    return page(f"{info['title']} {info['version']}", "".join(parts))


def _operation(method: str, path: str, said: Mapping[str, Any]) -> str:
    words = escape(said.get("description", "")).replace("\n", " ")
    parameters = "".join(_parameter(p) for p in said.get("parameters", []))
    shown = (
        f'<p><a href="{escape(path)}">Open it</a> (in a browser that is signed in)</p>'
        if method == "get" and "{" not in path
        else ""
    )
    return (
        f'<details><summary><span class="method">{method.upper()}</span> '
        f'<span class="path">{escape(path)}</span> '
        f'<span class="soft">{escape(said.get("summary", ""))}</span></summary><p>{words}</p>'
        f"{shown}{_table(('Parameter', 'In', 'What it takes'), parameters)}"
        f"{_body(said)}{_table(('Answer', 'What', 'Shape'), ''.join(_responses(said)))}</details>"
    )


def _parameter(said: Mapping[str, Any]) -> str:
    needed = " (required)" if said.get("required") else ""
    return (
        f"<tr><td><code>{escape(said['name'])}</code>{needed}</td><td>{escape(said['in'])}</td>"
        f"<td>{escape(said.get('description', ''))} {_shape(said.get('schema', {}))}</td></tr>"
    )


def _body(said: Mapping[str, Any]) -> str:
    content = said.get("requestBody", {}).get("content", {})
    shapes = {_shape(media.get("schema", {})) for media in content.values()}
    return (
        f"<p>Body: {', '.join(sorted(shapes))} as {escape(', '.join(content))}</p>"
        if content
        else ""
    )


def _responses(said: Mapping[str, Any]) -> Iterator[str]:
    for status, answer in said.get("responses", {}).items():
        content = answer.get("content", {})
        shapes = ", ".join(_shape(m.get("schema", {})) for m in content.values())
        yield (
            f"<tr><td>{escape(status)}</td><td>{escape(answer.get('description', ''))}</td>"
            f"<td>{shapes}</td></tr>"
        )


def _table(heads: tuple[str, ...], rows: str) -> str:
    if not rows:
        return ""
    return f"<table><tr>{''.join(f'<th>{h}</th>' for h in heads)}</tr>{rows}</table>"


def _shape(schema: Mapping[str, Any]) -> str:
    if "$ref" in schema:
        name = escape(schema["$ref"].rsplit("/", 1)[-1])
        return f'<a href="#{name}">{name}</a>'
    for key in ("anyOf", "oneOf", "allOf"):
        if key in schema:
            return " or ".join(_shape(s) for s in schema[key])
    if schema.get("type") == "array":
        return f"list of {_shape(schema.get('items', {}))}"
    if "enum" in schema:
        return " | ".join(f"<code>{escape(str(v))}</code>" for v in schema["enum"])
    return f"<code>{escape(str(schema.get('type', 'anything')))}</code>"


def _schema(name: str, schema: Mapping[str, Any]) -> str:
    rows = "".join(
        f"<tr><td><code>{escape(field)}</code></td><td>{_shape(said)}</td>"
        f"<td>{escape(said.get('description', ''))}{_default(said)}</td></tr>"
        for field, said in schema.get("properties", {}).items()
    )
    inside = _table(("Field", "Takes", ""), rows) or f"<p>{_shape(schema)}</p>"
    words = escape(schema.get("description", "")).replace("\n", " ")
    return (
        f'<details id="{escape(name)}" open><summary><b>{escape(name)}</b></summary>'
        f"<p>{words}</p>{inside}</details>"
    )


def _default(said: Mapping[str, Any]) -> str:
    if said.get("default") is None:
        return ""
    return f' <span class="soft">default <code>{escape(json.dumps(said["default"]))}</code></span>'
