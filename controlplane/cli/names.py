"""Deployment names on the command line, completed from the server where it answers at once."""

from __future__ import annotations

from typing import Annotated

import typer

_PATIENCE = 0.8  # seconds; a person waits with a finger on the tab key


def deployment_names(incomplete: str) -> list[str]:
    """Names that begin so. A server that doesn't answer completes nothing, and says nothing."""
    from controlplane.cli.client import Client, items
    from controlplane.errors import AppError

    try:
        with Client(read=_PATIENCE) as client:
            found = items(client.get("/deployments", limit=100, name=incomplete.lower() or None))
    except (AppError, UnicodeError):
        return []
    return [n for d in found if isinstance(n := d.get("name"), str) and n.isprintable()]


Ref = Annotated[
    str, typer.Argument(metavar="NAME", help="Its name or id.", autocompletion=deployment_names)
]
