"""`keys`: who may call."""

from __future__ import annotations

from datetime import UTC, datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import quote

import typer

from controlplane.cli.output import Form, Output, grid, moment, note, plain, say, show

if TYPE_CHECKING:
    from rich.console import RenderableType


class Role(StrEnum):
    ADMIN = "admin"
    MEMBER = "member"
    VIEWER = "viewer"


def register(app: typer.Typer) -> None:
    keys = typer.Typer(help="API keys of the workspace.", no_args_is_help=True)
    keys.command("ls")(ls)
    keys.command("create")(create)
    keys.command("revoke")(revoke)
    app.add_typer(keys, name="keys")


def ls(output: Output = Form.TABLE) -> None:
    """List every key, revoked ones too; never the key itself."""
    from controlplane.cli.client import Client, items

    with Client() as client:
        told = client.get("/keys")
        rows = items(told)
    show(told, output, lambda: _table(rows))


def create(
    name: Annotated[str, typer.Argument(help="What it is for.")],
    role: Annotated[Role, typer.Option(help="What it may do.")] = Role.MEMBER,
    expires_in: Annotated[
        str | None, typer.Option(help="As 30d. [default: it does not expire]")
    ] = None,
    output: Output = Form.TABLE,
) -> None:
    """Make a key. It is printed this once; only the key goes to stdout."""
    from controlplane.cli.client import Client

    asked = {"name": name, "role": str(role), "expires_in": expires_in}
    with Client() as client:
        made = client.post("/keys", asked)
    if output is not Form.TABLE:
        show(made, output, lambda: "")
        return
    note(f"Made {plain(made.get('id'))}, a {role}'s key. It is shown this once:")
    say(plain(made.get("key")))


def revoke(key_id: Annotated[str, typer.Argument(metavar="ID", help="As keys ls says.")]) -> None:
    """Revoke a key for good. Every call with it is refused from now on."""
    from controlplane.cli.client import Client

    with Client() as client:
        client.delete(f"/keys/{quote(key_id, safe='')}")
    say(f"{plain(key_id)} is revoked.")


def _table(rows: list[dict[str, Any]]) -> RenderableType:
    return grid(
        ("ID", "NAME", "ROLE", "BEGINS", "MADE", "STATE"),
        [
            (
                plain(k.get("id")),
                plain(k.get("name")),
                plain(k.get("role")),
                plain(k.get("prefix")) or "-",
                f"{k.get('created_at')}"[:10],
                _state(k),
            )
            for k in rows
        ],
    )


def _state(key: dict[str, Any]) -> str:
    if key.get("revoked_at"):
        return "revoked"
    end = moment(key.get("expires_at"))
    if end is None:
        return "in force"
    word = "expired" if end <= datetime.now(UTC) else "until"
    return f"{word} {end:%Y-%m-%d}"
