"""`logs` and `events`: what the engines said, and what happened."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from controlplane.cli.names import Ref
from controlplane.cli.output import Form, Output, grid, plain, plain_lines, say, show
from controlplane.errors import Unavailable

if TYPE_CHECKING:
    from controlplane.cli.client import Client

LOOK_EVERY = 1.0  # seconds between looks at events that are followed
Follow = Annotated[bool, typer.Option("--follow", "-f", help="Stay, and print what comes.")]


def register(app: typer.Typer) -> None:
    app.command("logs")(logs)
    app.command("events")(events)


def logs(
    name: Ref,
    follow: Follow = False,
    lines: Annotated[int, typer.Option("--lines", "-n", help="How many of the last.", min=0)] = 200,
    output: Output = Form.TABLE,
) -> None:
    """Print the engines' own words; while weights are fetched, the download's."""
    from controlplane.cli.client import Client, at, items

    with Client() as client:
        if not follow:
            told = client.get(at(name, "logs"), lines=lines)
            if output is not Form.TABLE:
                show(told, output, lambda: "")
                return
            for line in items(told):
                _print_line(line, output)
            return
        path = at(name, "logs")
        with client.stream("GET", path, follow="true", lines=lines) as stream:
            for kind, data in stream:
                if kind == "end":
                    return
                if kind == "line":
                    _print_line(_parsed(data), output)
    raise Unavailable("stream_ended", "The log's stream broke off.", hint="Start it again.")


def events(
    name: Ref,
    follow: Follow = False,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=200)] = 50,
    output: Output = Form.TABLE,
) -> None:
    """Print what happened, oldest first."""
    from controlplane.cli.client import Client, at, items

    with Client() as client:
        told = client.get(at(name, "events"), limit=limit)
        rows = list(reversed(items(told)))
        if not follow:
            show(told, output, lambda: grid(("AT", "WHO", "EVENT", ""), map(_row, rows)))
            return
        for event in rows:
            _print_event(event, output)
        last = max((_number(e) for e in rows), default=0)
        while True:
            time.sleep(LOOK_EVERY)
            for event in _newer(client, at(name, "events"), last):
                _print_event(event, output)
                last = max(last, _number(event))


def _newer(client: Client, path: str, last: int) -> list[dict[str, Any]]:
    """The events after number `last`, oldest first, however many there are."""
    fresh = []
    for event in client.pages(path):
        if _number(event) <= last:
            break
        fresh.append(event)
    return fresh[::-1]


def _print_event(event: dict[str, Any], form: Form) -> None:
    if form is Form.TABLE:
        say("  ".join(filter(None, _row(event))))
    else:
        say(json.dumps(event))


def _row(event: dict[str, Any]) -> tuple[str, str, str, str]:
    word = event.get("phase") if event.get("kind") == "phase" else event.get("kind")
    reason = f" ({plain(event['reason'])})" if event.get("reason") else ""
    at = f"{event.get('at')}"[:19].replace("T", " ")
    return (
        plain(at),
        plain(event.get("actor")),
        plain(word) + reason,
        plain(event.get("message")),
    )


def _number(event: dict[str, Any]) -> int:
    number = event.get("number")
    return number if isinstance(number, int) else 0


def _print_line(line: dict[str, Any], form: Form) -> None:
    if form is Form.TABLE:
        text = plain_lines(str(line.get("text", "")))
        say(f"{plain(line.get('source'))} | {text}")
    else:
        say(json.dumps(line))


def _parsed(data: str) -> dict[str, Any]:
    try:
        found = json.loads(data)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
