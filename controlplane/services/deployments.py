"""Deployments: made, listed, shown, changed, and given up."""

from __future__ import annotations

import hashlib
import json
import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy.orm import Session

from controlplane.auth.principals import Action, Principal
from controlplane.domain.deployment import DeploymentSpec, ScaleDownPolicy
from controlplane.domain.naming import ulid
from controlplane.domain.phases import Desired
from controlplane.domain.spec_json import merge_patch, parse_spec, spec_to_json
from controlplane.errors import Conflict, FieldError, Invalid, NotFound, Stale
from controlplane.persistence import deployments, events, idempotency, local_models
from controlplane.persistence.changes import announce, raise_epoch
from controlplane.persistence.deployments import Filters, Position, Rows
from controlplane.persistence.tables import DeploymentRow
from controlplane.services.admission import local_names, objections, refuse
from controlplane.services.site import Site
from controlplane.services.tiers import Catalogue, catalogue
from controlplane.services.views import View, to_view

LONGEST_REF = 64


@dataclass(frozen=True, slots=True)
class Page:
    items: list[View]
    next: Position | None


def create(site: Site, by: Principal, raw: Any, *, idempotency_key: str | None = None) -> View:
    """Accept the spec `raw` as a new deployment, phase queued.

    With an idempotency key that was used for the same spec within a day, nothing is made and
    what it made then is returned. Raises Invalid for a wrong spec, Refused where this machine
    can't serve it, Conflict for a taken name or a key that was used for something else.
    """
    by.require(Action.DEPLOY)
    tiers = catalogue(site)
    spec = parse_spec(raw, default_tier=tiers.default)
    deployment_id = new_id("dep")
    with site.begin() as session:
        if idempotency_key is not None:
            earlier = _repeated(session, by, idempotency_key, raw)
            if earlier is not None:
                return earlier
        refuse(objections(spec, tiers, _registered(session, spec)))
        stored = deployments.add(
            session,
            deployment_id=deployment_id,
            workspace=by.workspace,
            name=spec.name,
            spec=spec_to_json(spec),
            engine_key=secrets.token_urlsafe(32),
        )
        if not stored:
            raise _name_taken(session, by, spec.name)
        if idempotency_key is not None:
            idempotency.remember(
                session,
                by.workspace,
                idempotency_key,
                request_digest=_digest(raw),
                deployment_id=deployment_id,
            )
        record(session, by, deployment_id, "created", f"{spec.name} was created.")
        view = to_view(must_find(session, by, deployment_id))
    site.hints.reconcile(deployment_id)
    return view


def show(site: Site, by: Principal, ref: str) -> View:
    """The deployment that `ref` names. Raises NotFound, for another workspace's as well."""
    by.require(Action.READ)
    with site.begin() as session:
        return to_view(must_find(session, by, ref))


def listed(
    site: Site, by: Principal, filters: Filters, *, after: Position | None, limit: int
) -> Page:
    """One page, newest first."""
    by.require(Action.READ)
    with site.begin() as session:
        rows = deployments.page(session, by.workspace, filters, after=after, limit=limit + 1)
        shown = rows[:limit]
        more = len(rows) > limit
        last = Position(shown[-1][0].created_at, shown[-1][0].id) if more else None
        return Page([to_view(r) for r in shown], last)


def update(site: Site, by: Principal, ref: str, patch: Any, *, if_match: int | None) -> View:
    """Merge `patch` into the spec (RFC 7396). One that changes nothing keeps the generation.

    Raises Stale when `if_match` is given and is not the generation that stands.
    """
    by.require(Action.DEPLOY)
    if not isinstance(patch, Mapping):
        raise Invalid("invalid_patch", "A patch is an object with the fields to change.")
    tiers = catalogue(site)
    with site.begin() as session:
        row, _ = must_find(session, by, ref, lock=True)
        refuse_deleted(row)
        if if_match is not None and if_match != row.generation:
            raise Stale(
                "stale_generation",
                f"{row.name} is at generation {row.generation}, not {if_match}.",
                hint="Get it again, look at what changed, and send the change anew.",
            )
        spec = _patched(row, patch, tiers)
        if spec_to_json(spec) == row.spec:
            return to_view(must_find(session, by, row.id))
        before = _parsed(row.spec)
        refuse(objections(spec, tiers, _registered(session, spec), before=before))
        new = spec_to_json(spec)
        changed = ", ".join(sorted(k for k, v in new.items() if v != row.spec.get(k)))
        deployments.respec(session, row, new)
        record(session, by, row.id, "updated", f"Generation {row.generation} changes {changed}.")
        view = to_view(must_find(session, by, row.id))
    site.hints.reconcile(view.id)
    return view


def delete(site: Site, by: Principal, ref: str) -> View:
    """Ask for the end of a deployment; its engines drain first. Repeating is a no-op."""
    by.require(Action.DEPLOY)
    with site.begin() as session:
        row, _ = must_find(session, by, ref, lock=True)
        if row.desired != Desired.DELETED:
            deployments.desire(session, row, Desired.DELETED)
            record(session, by, row.id, "delete_asked", f"{row.name} is to be deleted.")
        view = to_view(must_find(session, by, row.id))
    site.hints.reconcile(view.id)
    return view


def must_find(session: Session, by: Principal, ref: str, *, lock: bool = False) -> Rows:
    """The rows that `ref` names in the caller's workspace. Raises NotFound."""
    plain = len(ref) <= LONGEST_REF and ref.isascii() and ref.isprintable()
    rows = deployments.find(session, by.workspace, ref, lock=lock) if plain else None
    if rows is None:
        raise NotFound(
            "deployment_not_found",
            "There is no such deployment.",
            hint="See what there is: slipstream ls.",
        )
    return rows


def refuse_deleted(row: DeploymentRow) -> None:
    """Raises Conflict when `row` is being deleted: nothing else may be asked of it then."""
    if row.desired == Desired.DELETED:
        raise Conflict(
            "being_deleted",
            f"{row.name} is being deleted.",
            hint=f"Deploy it again when it is gone: slipstream wait {row.name} --for deleted.",
        )


def record(session: Session, by: Principal, deployment_id: str, kind: str, message: str) -> None:
    """Write what a person did: the event, the change stream's word and the route epoch."""
    events.append(session, deployment_id, by.workspace, kind, message, actor=by.actor)
    announce(session, deployment_id)
    raise_epoch(session)


def new_id(prefix: str) -> str:
    """A fresh id that sorts by time: `dep_01J...`."""
    return f"{prefix}_{ulid(time.time_ns() // 1_000_000, secrets.token_bytes(10))}"


def _digest(raw: Any) -> str:
    """Of what a request said, whatever the order of its keys."""
    return hashlib.sha256(json.dumps(raw, sort_keys=True).encode()).hexdigest()


def _repeated(session: Session, by: Principal, key: str, raw: Any) -> View | None:
    earlier = idempotency.claim(session, by.workspace, key)
    if earlier is None:
        return None
    if earlier.request_digest != _digest(raw):
        raise Conflict(
            "idempotency_key_reused",
            "This Idempotency-Key was used for another request.",
            hint="Send a new key with each new request, and the same one only to repeat one.",
        )
    return to_view(must_find(session, by, earlier.deployment_id))


def _registered(session: Session, spec: DeploymentSpec) -> set[str]:
    """Those of the registered models that `spec` names which exist, kept from removal."""
    names = local_names(spec)
    return {n for n in names if local_models.find(session, n, lock=True) is not None}


def _name_taken(session: Session, by: Principal, name: str) -> Conflict:
    rows = deployments.find(session, by.workspace, name)
    if rows is not None and rows[0].desired == Desired.DELETED:
        return Conflict(
            "name_taken",
            f'The deployment "{name}" is still being deleted.',
            hint=f"Wait for its end: slipstream wait {name} --for deleted.",
        )
    return Conflict(
        "name_taken",
        f'There is a deployment "{name}" already.',
        hint=f"Take another name, or change that one: slipstream update {name}.",
    )


def _patched(row: DeploymentRow, patch: Mapping[str, Any], tiers: Catalogue) -> DeploymentSpec:
    name = patch.get("name", row.name)
    if name != row.name:
        detail = "A deployment's name can't change."
        raise Invalid(
            "name_is_fixed",
            detail,
            hint="Deploy under the new name, then delete this one.",
            fields=(FieldError("name", "name_is_fixed", detail),),
        )
    merged = merge_patch(row.spec, patch)
    _drop_dependents(merged, patch)
    return parse_spec(merged, default_tier=tiers.default)


def _drop_dependents(merged: dict[str, Any], patch: Mapping[str, Any]) -> None:
    """What only made sense with an old value goes with it, unless the patch states it: `after`
    when the policy becomes never, `max` when `min` moves."""
    scale_down, replicas = patch.get("scale_down"), patch.get("replicas")
    if isinstance(scale_down, Mapping) and scale_down.get("policy") == ScaleDownPolicy.NEVER:
        merged["scale_down"] = merge_patch({"after": None}, scale_down)
    if isinstance(replicas, Mapping) and "min" in replicas and "max" not in replicas:
        merged["replicas"] = merge_patch({}, replicas)


def _parsed(stored: Mapping[str, Any]) -> DeploymentSpec | None:
    try:
        return parse_spec(stored)
    except Invalid:
        return None
