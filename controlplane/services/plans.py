"""Plans and manifests: what a spec would become, and what a deployment's engines are run by.
Nothing here creates anything."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from controlplane.auth.principals import Action, Principal
from controlplane.domain.deployment import DeploymentSpec
from controlplane.domain.spec_json import parse_spec, spec_to_json
from controlplane.domain.tiers import Tier
from controlplane.errors import AppError, Conflict, Invalid
from controlplane.paths import DataDir
from controlplane.persistence import deployments, local_models, vitals
from controlplane.services.admission import local_names, objections
from controlplane.services.commands import ShownCommand, show_command
from controlplane.services.deployments import must_find
from controlplane.services.sight import Sight, look
from controlplane.services.site import Site
from controlplane.services.tiers import catalogue
from controlplane.services.views import to_view

UNNAMED = "my-model"


@dataclass(frozen=True, slots=True)
class Finding:
    severity: str
    code: str
    detail: str
    hint: str


@dataclass(frozen=True, slots=True)
class Plan:
    """`spec` is the JSON form with defaults filled in. `command` is None where a finding says
    why there is none."""

    spec: Mapping[str, Any]
    tier: Tier
    here: bool | None
    findings: tuple[Finding, ...]
    command: ShownCommand | None


def plan(site: Site, by: Principal, raw: Any) -> Plan:
    """What `raw` would become. It needs no name. Raises Invalid for a spec that is wrong in
    itself and for an unknown tier; what only stands in its way here is a finding."""
    by.require(Action.PLAN)
    tiers = catalogue(site)
    named = isinstance(raw, Mapping) and raw.get("name") is not None
    if isinstance(raw, Mapping) and not named:
        raw = {**raw, "name": UNNAMED}
    spec = parse_spec(raw, default_tier=tiers.default)
    with site.begin() as session:
        rows = [local_models.find(session, n) for n in local_names(spec)]
        registered = {row.name: row.path for row in rows if row is not None}
        taken = named and deployments.find(session, by.workspace, spec.name) is not None
    against = objections(spec, tiers, registered)
    offer = tiers.offers.get(spec.tier)
    if offer is None:
        raise next(e for e in against if e.code == "unknown_tier")
    findings = [_finding(e) for e in against]
    if taken:
        findings.append(
            Finding("error", "name_taken", f'There is a deployment "{spec.name}" already.', "")
        )
    sight = look(spec, DataDir(site.settings.data_dir), registered)
    findings += [Finding("note", u.code, u.detail, u.hint) for u in sight.unseen]
    command = _command(spec, offer.tier, sight)
    return Plan(spec_to_json(spec), offer.tier, offer.here, tuple(findings), command)


def manifest(site: Site, by: Principal, ref: str) -> ShownCommand:
    """What one engine of a deployment is run by. Raises Conflict where its tier is gone."""
    by.require(Action.READ)
    with site.begin() as session:
        rows = must_find(session, by, ref)
        view = to_view(rows)
        replicas = vitals.replicas(session, view.id)
    spec = parse_spec(view.spec)
    offer = catalogue(site).offers.get(spec.tier)
    if offer is None:
        raise Conflict(
            "unknown_tier",
            f"The tier {spec.tier} of {view.name} is no longer there.",
            hint="Bring it back in the tiers file, or give the deployment another tier.",
        )
    current = view.status.resolved.generation == view.generation
    port = _port(replicas[0].endpoint) if len(replicas) == 1 else None
    return show_command(spec, offer.tier, view.status.resolved if current else None, port)


def _finding(error: AppError) -> Finding:
    return Finding("error", error.code, error.message, error.hint)


def _command(spec: DeploymentSpec, tier: Tier, sight: Sight) -> ShownCommand | None:
    says = sight.draft_says_heterogeneous
    try:
        return show_command(spec, tier, None, draft_says_heterogeneous=says)
    except Invalid:
        return None


def _port(endpoint: str | None) -> int | None:
    if not endpoint:
        return None
    return urlsplit(endpoint if "://" in endpoint else f"//{endpoint}").port
