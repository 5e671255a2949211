"""`tiers`: the hardware that may be asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer

from controlplane.cli.output import Form, Output, grid, show

if TYPE_CHECKING:
    from rich.console import RenderableType

_HERE = {True: "yes", False: "no", None: "-"}


def register(app: typer.Typer) -> None:
    app.command("tiers")(tiers)


def tiers(output: Output = Form.TABLE) -> None:
    """List the hardware classes, and which of them are here."""
    from controlplane.cli.client import Client, items

    with Client() as client:
        told = client.get("/tiers")
        rows = items(told)
    show(told, output, lambda: _table(rows))


def _table(rows: list[dict[str, Any]]) -> RenderableType:
    return grid(
        ("TIER", "HERE", "MEMORY", "PRICE/H", "WHAT"),
        [
            (
                f"{t.get('name')}{' (default)' if t.get('default') else ''}",
                _HERE.get(t.get("here"), "-"),
                _memory(t.get("memory_bytes"), t.get("count")),
                "-" if t.get("price_hour") is None else f"{t['price_hour']}",
                f"{t.get('description') or t.get('gpu') or ''}",
            )
            for t in rows
        ],
    )


def _memory(each: object, count: object) -> str:
    if not isinstance(each, int):
        return "-"
    times = f"{count} x " if isinstance(count, int) and count > 1 else ""
    return f"{times}{each / 2**30:.0f} GiB"
