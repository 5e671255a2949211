"""`import`: from a `vllm serve` command line to a file that `apply` reads."""

from __future__ import annotations

import json
import shlex
from typing import Annotated

import typer

from controlplane.cli.output import Form, Output, note, plain, say
from controlplane.domain.spec_json import parse_spec
from controlplane.errors import Invalid

_ANY_TIER = "no-tier-named"


def register(app: typer.Typer) -> None:
    settings = {"ignore_unknown_options": True, "allow_interspersed_args": False}
    app.command("import", context_settings=settings)(import_)


def import_(
    words: Annotated[list[str], typer.Argument(metavar="-- vllm serve ...")],
    tier: Annotated[str | None, typer.Option("--tier", "-t", help="The hardware.")] = None,
    output: Output = Form.YAML,
) -> None:
    """Turn a vllm serve command into a spec. What it can't hold is named on stderr."""
    from controlplane.cli.documents import write
    from controlplane.cli.vllm_command import read_command

    # A whole line in quotes is taken apart as a shell would.
    try:
        words = shlex.split(words[0]) if len(words) == 1 else words
    except ValueError as e:
        raise Invalid("not_vllm_serve", "The line's quotes don't match.") from e
    reading = read_command(words)
    spec = reading.spec | ({"tier": tier} if tier else {})
    parse_spec(spec, default_tier=_ANY_TIER)
    if output is Form.JSON:
        say(json.dumps(spec, indent=2))
    else:
        typer.echo(write(spec), nl=False)
    for name, why in reading.left_out:
        note(f"Left out: {plain(name)} ({why})")
    note("Save it, then: slipstream apply -f FILE")
