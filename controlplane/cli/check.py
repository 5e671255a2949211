"""`check`: what a deployment would become, without making one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from controlplane.cli.output import Form, Output, note, plain, say, show
from controlplane.cli.spec_options import (
    ContextLength,
    Draft,
    EngineArg,
    EngineVersion,
    MethodName,
    Model,
    Replicas,
    Revision,
    Tier,
    Tokens,
    Vocabulary,
    spec_json,
)
from controlplane.errors import AppError, Invalid
from controlplane.paths import DataDir

if TYPE_CHECKING:
    from controlplane.services.tiers import Catalogue

_MARKS = {"error": "✗", "warning": "!", "note": "·"}
_HERE = {"True": "here", "False": "not on this machine"}
REFUSED = 4


def register(app: typer.Typer) -> None:
    app.command("check")(check)


def check(
    model: Model,
    tier: Tier = None,
    draft: Draft = None,
    tokens: Tokens = None,
    method: MethodName = None,
    vocabulary: Vocabulary = None,
    context_length: ContextLength = None,
    revision: Revision = None,
    replicas: Replicas = None,
    engine_version: EngineVersion = None,
    engine_arg: EngineArg = None,
    offline: Annotated[
        bool, typer.Option("--offline", help="Ask no server: this machine's own rules.")
    ] = False,
    output: Output = Form.TABLE,
) -> None:
    """Check a model, a draft and a tier, and print the engine's command. Nothing is made."""
    spec = spec_json(
        model=model,
        tier=tier,
        draft=draft,
        tokens=tokens,
        method=method,
        vocabulary=vocabulary,
        context_length=context_length,
        revision=revision,
        replicas=replicas,
        engine_version=engine_version,
        engine_arg=engine_arg,
    )
    plan = local_plan(spec) if offline else _plan(spec)
    if output is Form.TABLE:
        _print(plan)
    else:
        show(plan, output, lambda: "")
    if any(f.get("severity") == "error" for f in findings(plan)):
        raise typer.Exit(REFUSED)


def _plan(spec: dict[str, Any]) -> dict[str, Any]:
    from controlplane.cli.client import Client

    try:
        with Client() as client:
            return client.post("/plans", spec)
    except AppError as e:
        if e.code != "unreachable":
            raise
    note("No server answers: checked by this machine's own rules.")
    return local_plan(spec)


def local_plan(spec: Mapping[str, Any]) -> dict[str, Any]:
    """What POST /plans would answer, from what this machine alone knows: which folders are
    registered only a server tells."""
    from controlplane.domain.spec_json import parse_spec, spec_to_json
    from controlplane.services.admission import local_names, objections
    from controlplane.services.commands import show_command
    from controlplane.services.sight import look
    from controlplane.settings import load_settings

    tiers = _catalogue()
    parsed = parse_spec({"name": "my-model", **spec}, default_tier=tiers.default)
    against = objections(parsed, tiers, local_names(parsed))
    offer = tiers.offers.get(parsed.tier)
    if offer is None:
        raise next(e for e in against if e.code == "unknown_tier")
    sight = look(parsed, DataDir(load_settings().data_dir), {})
    try:
        says = sight.draft_says_heterogeneous
        command = asdict(show_command(parsed, offer.tier, None, draft_says_heterogeneous=says))
    except Invalid:
        command = None
    told = asdict(offer.tier)
    return {
        "spec": spec_to_json(parsed),
        "tier": {**told, "here": offer.here, "default": offer.tier.name == tiers.default},
        "profile": None,
        "fit": None,
        "findings": [
            {"severity": "error", "code": e.code, "detail": e.message, "hint": e.hint}
            for e in against
        ]
        + [{"severity": "note", **asdict(u)} for u in sight.unseen],
        "cost": None,
        "speedup": None,
        "command": command,
        "manifest": {"kind": "command", "command": command} if command else None,
    }


def _catalogue() -> Catalogue:
    from controlplane.machine import find_devices
    from controlplane.services.tiers import catalogue_of
    from controlplane.settings import load_settings

    settings = load_settings()
    local = settings.driver == "local"
    return catalogue_of(settings.tiers, find_devices(settings) if local else None)


def findings(plan: Mapping[str, Any]) -> list[dict[str, Any]]:
    found = plan.get("findings")
    return [f for f in found if isinstance(f, dict)] if isinstance(found, list) else []


def _print(plan: Mapping[str, Any]) -> None:
    for finding in findings(plan):
        say(f"{_MARKS.get(str(finding.get('severity')), '·')} {plain(finding.get('detail'))}")
        if finding.get("hint"):
            say(f"  {plain(finding.get('hint'))}")
    tier = plan.get("tier")
    if isinstance(tier, dict):
        here = _HERE.get(str(tier.get("here")), "")
        what = ", ".join(filter(None, (plain(tier.get("description")), here)))
        say(f"Tier     {plain(tier.get('name'))}" + (f" ({what})" if what else ""))
    command = plan.get("command")
    if isinstance(command, dict):
        say(f"Engine   vLLM {plain(command.get('engine'))}")
        say(f"Command  {plain(command.get('text'))}")
    if not any(f.get("severity") == "error" for f in findings(plan)):
        say("Nothing stands in its way.")
