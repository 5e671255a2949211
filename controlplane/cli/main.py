"""`slipstream`: the program, and how it ends."""

from __future__ import annotations

import os
import sys
from importlib.metadata import version
from typing import Annotated

import typer

from controlplane.cli import engines, system
from controlplane.cli.output import clean
from controlplane.errors import AppError, Kind

EXIT_CODES = {
    Kind.MALFORMED: 2,
    Kind.INVALID: 2,
    Kind.NOT_FOUND: 3,
    Kind.UNAVAILABLE: 5,
}
"""All other kinds end with 4: refused, or in conflict with what is there."""

app = typer.Typer(
    name="slipstream",
    help="Dedicated LLM deployments on your own GPUs, with a draft model running ahead.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"slipstream {version('slipstream')}")
        raise typer.Exit


@app.callback()
def _root(
    _shown: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


for part in (system, engines):
    part.register(app)


def main() -> None:
    """Run the command line. What goes wrong is a sentence, a hint and an exit code; only a
    fault of ours shows a traceback."""
    try:
        app()
    except AppError as e:
        complain(e)
        sys.exit(EXIT_CODES.get(e.kind, 4))
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)


def complain(error: AppError) -> None:
    """One sentence, each wrong value, and what to do, on stderr."""
    typer.echo(clean(error.message), err=True)
    if len(error.fields) > 1:
        for f in error.fields:
            typer.echo(f"  {clean(f.path)}: {clean(f.detail)}", err=True)
    if error.hint:
        typer.echo(f"  {clean(error.hint)}", err=True)


if __name__ == "__main__":
    main()
