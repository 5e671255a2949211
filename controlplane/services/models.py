"""Models that are here without a hub: the demo pair, and folders that an admin registered."""

from __future__ import annotations

import os
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from controlplane.auth.principals import Action, Principal
from controlplane.domain.model_refs import parse_model_ref
from controlplane.domain.naming import NAME_RULE, is_name
from controlplane.errors import Conflict, FieldError, Invalid, NotFound, Refused
from controlplane.paths import DataDir
from controlplane.persistence import deployments, local_models
from controlplane.services.admission import DEMO_MODELS
from controlplane.services.site import Site

LONGEST_PATH = 4096


@dataclass(frozen=True, slots=True)
class LocalModelView:
    """`ready` is whether its folder holds a model now."""

    name: str
    source: str
    path: str
    ready: bool
    created_at: datetime | None


def listed(site: Site, by: Principal) -> list[LocalModelView]:
    """The demo models, then the registered ones by name."""
    by.require(Action.READ)
    with site.begin() as session:
        rows = local_models.listed(session)
    folder = DataDir(site.settings.data_dir).demo_models
    demo = [
        LocalModelView(
            f"demo/{n}", "demo", str(folder / n), (folder / n / ".complete").exists(), None
        )
        for n in DEMO_MODELS
    ]
    return demo + [_registered(r.name, r.path, r.created_at) for r in rows]


def register(site: Site, by: Principal, *, name: str, path: str) -> LocalModelView:
    """Register the folder `path` of this machine as `local/NAME`. Nothing is copied.

    Raises Invalid when it is no absolute folder with a config.json, Conflict for a taken name.
    """
    by.require(Action.MANAGE_MODELS)
    name = name.removeprefix("local/")
    _check_name(name)
    _check_folder(path)
    with site.begin() as session:
        row = local_models.add(session, name, path)
        if row is None:
            raise Conflict(
                "model_name_taken",
                f"There is a model local/{name} already.",
                hint=f"Take another name, or remove that one: slipstream models rm {name}.",
            )
    return _registered(row.name, row.path, row.created_at)


def remove(site: Site, by: Principal, name: str) -> None:
    """Forget a registered model; its folder stays. Refused while a deployment names it."""
    by.require(Action.MANAGE_MODELS)
    name = name.removeprefix("local/")
    with site.begin() as session:
        users = deployments.users_of_model(session, f"local/{name}") if is_name(name) else []
        if users:
            raise Refused(
                "model_in_use",
                f"Deployments use local/{name}: {', '.join(users)}.",
                hint="Delete them or give them another model first.",
            )
        if not is_name(name) or not local_models.remove(session, name):
            raise NotFound(
                "model_not_found",
                "No model is registered by that name.",
                hint="See what there is: slipstream models ls.",
            )


def _registered(name: str, path: str, created_at: datetime) -> LocalModelView:
    return LocalModelView(f"local/{name}", "local", path, _holds_model(path), created_at)


def _holds_model(path: str) -> bool:
    try:
        return (Path(path) / "config.json").is_file()
    except OSError:
        return False


def _check_name(name: str) -> None:
    try:
        right = is_name(name)
        parse_model_ref(f"local/{name}")
    except ValueError:
        right = False
    if not right:
        raise _invalid("name", "name", f"A model's name is {NAME_RULE}, without .. or --.")


def _check_folder(path: str) -> None:
    if len(path) > LONGEST_PATH or not path.isprintable() or not os.path.isabs(path):
        raise _invalid("path", "path", "The path is an absolute one of this server's machine.")
    if ".." in Path(path).parts:
        raise _invalid("path", "path", "The path goes straight to its folder, without ..")
    if not _holds_model(path):
        raise _invalid(
            "path", "no_model_there", "There is no folder with a config.json at this path."
        )


def _invalid(path: str, code: str, detail: str) -> Invalid:
    return Invalid(
        "invalid_model",
        detail,
        hint="The folder is on the machine where the server runs, as a hub download leaves it.",
        fields=(FieldError(path, code, detail),),
    )
