"""`models`: what can be deployed without a hub."""

from __future__ import annotations

import os
from typing import Annotated
from urllib.parse import quote

import typer

from controlplane.cli.client import Client, Object, items
from controlplane.cli.output import Form, Output, grid, plain, say, show


def register(app: typer.Typer) -> None:
    """Add `models` to the program."""
    models = typer.Typer(help="Models that are here without a hub.", no_args_is_help=True)
    models.command("ls")(ls)
    models.command("add")(add)
    models.command("rm")(rm)
    app.add_typer(models, name="models")


def ls(output: Output = Form.TABLE) -> None:
    """List the demo models and the registered folders."""
    with Client() as client:
        found = client.get("/models")
    show(found, output, lambda: grid(_HEADS, [_row(m) for m in items(found)]))


def add(
    name: Annotated[str, typer.Argument(help="It is deployed as local/NAME.")],
    path: Annotated[str, typer.Option(help="A folder with a model, on the server's machine.")],
    output: Output = Form.TABLE,
) -> None:
    """Register a folder with a model as local/NAME. Nothing is copied."""
    with Client() as client:
        # On the server's own machine a path means what it means to a shell.
        folder = os.path.abspath(os.path.expanduser(path)) if client.address.here else path
        made = client.post("/models", {"name": name, "path": folder})
    show(made, output, lambda: grid(_HEADS, [_row(made)]))


def rm(name: Annotated[str, typer.Argument(help="As NAME or local/NAME.")]) -> None:
    """Forget a registered folder, which itself stays as it is."""
    short = name.removeprefix("local/")
    with Client() as client:
        client.delete("/models/" + quote(short, safe="").replace(".", "%2E"))
    say(f"local/{plain(short)} is forgotten; its folder stays.")


_HEADS = ("NAME", "READY", "FOLDER")


def _row(model: Object) -> tuple[str, str, str]:
    return str(model.get("name")), "yes" if model.get("ready") else "no", str(model.get("path"))
