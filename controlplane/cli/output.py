"""What a command prints: a table for people, or JSON and YAML for programs."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Annotated, Any

import typer

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
_LIGHTS = {"green": "green", "yellow": "yellow", "orange": "dark_orange", "red": "red"}


class Form(StrEnum):
    TABLE = "table"
    JSON = "json"
    YAML = "yaml"


Output = Annotated[Form, typer.Option("--output", "-o", help="How to print the result.")]


def clean(text: object) -> str:
    """`text` without what could steer a terminal; tabs and line ends stay."""
    return _CONTROL.sub("", str(text))


def shown(text: object) -> str:
    """`text` for Rich: cleaned, and never read as markup."""
    from rich.markup import escape

    return escape(clean(text))


def light(color: str) -> str:
    """A deployment's light as Rich markup."""
    style = _LIGHTS.get(color, "dim")
    return f"[{style}]●[/{style}]"


def print_value(value: Any, form: Form) -> None:
    """`value` as the API's JSON, or the same as YAML."""
    if form is Form.YAML:
        typer.echo(to_yaml(value), nl=False)
    else:
        typer.echo(json.dumps(value, indent=2, ensure_ascii=False))


def to_yaml(value: Any) -> str:
    """YAML that reads back as `value`: texts that look like other types are quoted."""
    import yaml

    return str(yaml.safe_dump(value, sort_keys=False, allow_unicode=True, width=1000))


def print_table(columns: Sequence[str], rows: Sequence[Sequence[str]], empty: str) -> None:
    """Rows of Rich markup under `columns`, or the sentence `empty`. On a pipe the table keeps
    its full width, one line a row."""
    if not rows:
        typer.echo(empty)
        return
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column.upper(), overflow="fold", no_wrap=not sys.stdout.isatty())
    for row in rows:
        table.add_row(*row)
    console().print(table)


def print_facts(rows: Sequence[tuple[str, str]]) -> None:
    """Names with values (Rich markup), one a line; what is empty is left out."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in rows:
        if value:
            table.add_row(name, value)
    console().print(table)


def console(*, stderr: bool = False) -> Any:
    """Rich's console: wide where nobody looks, so that pipes see whole lines."""
    from rich.console import Console

    stream = sys.stderr if stderr else sys.stdout
    return Console(stderr=stderr, highlight=False, width=None if stream.isatty() else 200)


def print_items(
    answer: Mapping[str, Any],
    form: Form,
    columns: Mapping[str, Any],
    empty: str,
) -> None:
    """A list answer. `columns` maps a heading to a function of an item that gives markup."""
    if form is not Form.TABLE:
        print_value(answer, form)
        return
    rows = [[str(make(item)) for make in columns.values()] for item in answer["items"]]
    print_table(list(columns), rows, empty)
