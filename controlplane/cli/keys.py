"""`keys`: who may call."""

from __future__ import annotations

from datetime import UTC, datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import quote

import typer

from controlplane.cli.output import Form, Output, grid, moment, note, plain, say, show
from controlplane.errors import NotFound, Refused

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


def revoke(
    key: Annotated[str, typer.Argument(metavar="ID|NAME", help="As keys ls says.")],
) -> None:
    """Revoke a key for good. Every call with it is refused from now on."""
    from controlplane.cli.client import Client, items

    with Client() as client:
        key_id = _id_of(key, items(client.get("/keys")))
        client.delete(f"/keys/{quote(key_id, safe='')}")
    say(f"{plain(key)} is revoked.")


def _id_of(key: str, rows: list[dict[str, Any]]) -> str:
    """The id that `key` is, or that the only key in force of that name has."""
    if any(k.get("id") == key for k in rows):
        return key
    found = [str(k.get("id")) for k in rows if k.get("name") == key and not k.get("revoked_at")]
    if not found:
        raise NotFound("key_not_found", "There is no such key.", hint="See: slipstream keys ls")
    if len(found) > 1:
        raise Refused(
            "name_not_unique",
            f"{len(found)} keys have the name {plain(key)}.",
            hint=f"Name one by its id: {', '.join(found)}",
        )
    return found[0]


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
