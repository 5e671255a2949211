"""`up`, `down`, `open` and `doctor`: the one-machine system as a whole."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from controlplane.cli import doctor as parts
from controlplane.embedded import commands
from controlplane.embedded.console import command, origin, tunnel
from controlplane.embedded.front_door import ready, sign_in_path
from controlplane.errors import Unauthenticated, Unavailable
from controlplane.settings import Settings, load_settings


def register(app: typer.Typer) -> None:
    app.command("up")(up)
    app.command("down")(down)
    app.command("open")(open_)
    app.command("doctor")(doctor)


def up(
    detach: Annotated[
        bool, typer.Option("--detach", "-d", help="Return when it is ready; it runs behind.")
    ] = False,
    host: Annotated[
        str | None, typer.Option(help="The address to listen on. [default: 127.0.0.1]")
    ] = None,
    port: Annotated[
        int | None, typer.Option(help="The front door's port. [default: 8400]", min=1, max=65535)
    ] = None,
) -> None:
    """Run everything on this machine, until Ctrl-C."""
    if host is not None:
        os.environ["SLIPSTREAM_HOST"] = host
    if port is not None:
        os.environ["SLIPSTREAM_PORT"] = str(port)
    load_settings()  # what is wrong is told the usual way
    # The supervisor lives long: it gets a process without this command line's libraries.
    sys.stdout.flush()
    argv = [sys.executable, "-m", "controlplane.embedded", "up-behind" if detach else "up"]
    os.execv(sys.executable, argv)  # noqa: S606


def down(
    keep_engines: Annotated[
        bool, typer.Option("--keep-engines", help="Leave engines running; the next up adopts them.")
    ] = False,
) -> None:
    """Stop what runs from the data directory, engines too."""
    commands.down(load_settings(), keep_engines=keep_engines)


def open_() -> None:
    """Print a fresh link that signs a browser in once."""
    settings = load_settings()
    site = parts.site_of(settings)
    if site.running is None or not ready(site.host, site.port):
        raise Unavailable(
            "not_running",
            f"Nothing that answers runs from {settings.data_dir}.",
            hint=f"Start it: {command('up')}. If it runs: {command('doctor')}",
        )
    path = sign_in_path(site.host, site.port, parts.key_of(settings) or "")
    if path is None:
        raise Unauthenticated(
            "no_link",
            "The server gave no sign-in link for this machine's key.",
            hint=f"{command('up')} makes a new key when the old one is not in force any more.",
        )
    here = _at(settings, site)
    if (line := tunnel(here, dict(os.environ))) is not None:
        typer.echo(f"On the machine in front of you, first: {line}")
    typer.echo(f"{origin(here)}{path}")


def doctor() -> None:
    """Name the part that is dead or missing, and its fix."""
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    faults = 0
    console = Console(highlight=False)
    with console.status("Looking …"):
        for found in parts.examine(load_settings()):
            faults += not found.ok
            light = "[green]ok[/]" if found.ok else "[red]fault[/]"
            table.add_row(light, _plain(found.part), _plain(found.seen))
            if not found.ok and found.fix:
                table.add_row("", "", _plain(found.fix), style="yellow")
    console.print(table)
    console.print(_verdict(faults))
    if faults:
        raise typer.Exit(4)


def _verdict(faults: int) -> str:
    if not faults:
        return "Everything is well."
    return "1 part needs attention." if faults == 1 else f"{faults} parts need attention."


def _plain(text: str) -> str:
    """Text of others is shown as it is, never read as markup."""
    return text.replace("[", r"\[")


def _at(settings: Settings, site: parts.Site) -> Settings:
    server = replace(settings.server, host=site.host, port=site.port)
    return replace(settings, server=server)
