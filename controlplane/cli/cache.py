"""`cache`: the weights that were fetched from the hub onto this machine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Annotated

import typer

from controlplane.cli.address import find
from controlplane.cli.client import Client, Object
from controlplane.cli.output import Form, Output, grid, note, say, show
from controlplane.errors import AppError, Invalid, Refused
from controlplane.hub.attempts import Attempt
from controlplane.hub.cache import checked
from controlplane.hub.failures import ModelNotFound
from controlplane.paths import DataDir
from controlplane.settings import load_settings

if TYPE_CHECKING:
    from controlplane.hub.inventory import CachedModel

# Phases in which nothing reads the weights, and nothing will before a person says so.
_AT_REST = {"paused", "failed", "stopping"}


def register(app: typer.Typer) -> None:
    """Add `cache` to the program."""
    cache = typer.Typer(help="Weights that were fetched onto this machine.", no_args_is_help=True)
    cache.command("ls")(ls)
    cache.command("rm")(rm)
    app.add_typer(cache, name="cache")


def ls(output: Output = Form.TABLE) -> None:
    """List cached models: revision, size, last use, and which deployments use them."""
    from controlplane.hub import inventory  # the hub client takes a second to load

    found = inventory.inventory(DataDir(load_settings().data_dir).hub_cache)
    users = users_of_models()
    heads = ("MODEL", "REVISION", "SIZE", "LAST USED", "USED BY")
    told = {"items": [_item(m, users) for m in found]}
    show(told, output, lambda: grid(heads, [_row(m, users) for m in found]))


def rm(
    model: Annotated[str, typer.Argument(help="As org/name.")],
    revision: Annotated[
        str | None, typer.Option(help="One commit, branch or tag of it. [default: all]")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Don't ask.")] = False,
) -> None:
    """Remove a model's weights from this machine."""
    from controlplane.hub import inventory

    settings = load_settings()
    try:
        model, _ = checked(model, revision)
    except ModelNotFound as e:
        raise Invalid("usage", e.message, hint="See: slipstream cache ls") from e
    data = DataDir(settings.data_dir)
    here = [m for m in inventory.inventory(data.hub_cache) if m.model == model]
    users = users_of_models()
    names = (users or {}).get(model, ())
    if names:
        raise Refused(
            "model_in_use",
            f"Deployments use {model}: {', '.join(names)}.",
            hint="Pause or delete them first.",
        )
    if here and not yes:
        if users is None:
            note("No server runs here that could say whether a deployment uses it.")
        what = model if revision is None else f"{model} at {revision}"
        typer.confirm(f"Remove {what} from this machine?", abort=True)
    freed = inventory.remove(data.hub_cache, model, revision)
    _forget_failures(data, model, here)
    say(f"Removed {model}: {_size(freed)} are free again.")


def users_of_models() -> Mapping[str, Sequence[str]] | None:
    """The names of the deployments that read each model, or will by themselves; None when
    this machine's server can't be asked."""
    address = find()
    if not address.here:
        return None
    found: dict[str, list[str]] = {}
    try:
        with Client(address) as client:
            for deployment in client.pages("/deployments"):
                _note_models(deployment, found)
    except AppError:
        return None
    return found


def _note_models(deployment: Object, found: dict[str, list[str]]) -> None:
    if deployment["status"]["phase"] in _AT_REST:
        return
    spec = deployment["spec"]
    for model in {spec["model"], spec.get("draft_model")} - {None}:
        found.setdefault(model, []).append(deployment["name"])


def _forget_failures(data: DataDir, model: str, here: Sequence[CachedModel]) -> None:
    """What was fetched badly is to be fetched anew, so how that ended says nothing more."""
    known = {None, *(m.revision for m in here), *(n for m in here for n in m.names)}
    for revision in known:
        attempt = Attempt(data.download(model, revision))
        if attempt.failed() is not None and not attempt.is_worked_on():
            attempt.forget()


def _item(model: CachedModel, users: Mapping[str, Sequence[str]] | None) -> dict[str, object]:
    return {
        "model": model.model,
        "revision": model.revision,
        "names": list(model.names),
        "size_bytes": model.size,
        "last_used_at": _stamp(model.last_used),
        "complete": model.complete,
        "used_by": None if users is None else list(users.get(model.model, ())),
    }


def _row(model: CachedModel, users: Mapping[str, Sequence[str]] | None) -> tuple[str, ...]:
    commit = model.revision[:12] if model.revision else "-"
    names = f" ({', '.join(model.names)})" if model.names else ""
    return (
        model.model,
        commit + names + ("" if model.complete else " (incomplete)"),
        _size(model.size),
        model.last_used.strftime("%Y-%m-%d %H:%M") if model.last_used else "-",
        "?" if users is None else ", ".join(users.get(model.model, ())) or "-",
    )


def _stamp(at: datetime | None) -> str | None:
    return at.strftime("%Y-%m-%dT%H:%M:%SZ") if at else None


def _size(count: int) -> str:
    return f"{count / 1e9:.1f} GB" if count >= 1e9 else f"{count / 1e6:.1f} MB"
