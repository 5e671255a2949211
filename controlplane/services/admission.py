"""What a spec must meet beyond its own form: the tiers, engines and models that there are.

Pure: the facts come in, and the objections come out.
"""

from __future__ import annotations

from collections.abc import Collection

from controlplane.domain.deployment import DeploymentSpec, Method
from controlplane.domain.engines import engine_for, resolve_method
from controlplane.domain.model_refs import ModelSource, parse_model_ref
from controlplane.domain.tiers import DeviceKind, Tier
from controlplane.errors import AppError, FieldError, Invalid, Refused
from controlplane.services.tiers import Catalogue, Offer

DEMO_MODELS = ("smollm2-135m", "smollm2-draft")


def local_names(spec: DeploymentSpec) -> list[str]:
    """The registered models that `spec` names, without their `local/`."""
    refs = [parse_model_ref(m) for m in (spec.model, spec.draft_model) if m]
    return [r.name for r in refs if r.source is ModelSource.LOCAL]


def objections(
    spec: DeploymentSpec,
    tiers: Catalogue,
    registered: Collection[str],
    *,
    before: DeploymentSpec | None = None,
) -> list[AppError]:
    """Why `spec` can't be here, worst first; empty when it can.

    `registered` holds those of `local_names(spec)` that exist. With `before`, the spec that
    stands, a tier that was accepted once is not held against the new one.
    """
    found: list[AppError] = [*_model_faults(spec, registered)]
    offer = tiers.offers.get(spec.tier)
    if offer is None:
        found.append(_unknown_tier(spec.tier, tiers))
        return found
    found += _engine_faults(spec, offer.tier)
    if offer.here is False and (before is None or before.tier != spec.tier):
        found.append(_not_here(offer, tiers))
    return found


def refuse(found: list[AppError]) -> None:
    """Raises what `found` holds, if anything: all wrong values in one error."""
    invalid = [e for e in found if isinstance(e, Invalid)]
    if len(invalid) > 1:
        raise Invalid(
            "invalid_spec",
            invalid[0].message,
            hint="See errors[] for each value that is wrong.",
            fields=tuple(f for e in invalid for f in e.fields),
        )
    for error in [*invalid, *found]:
        raise error


def _invalid(path: str, code: str, message: str, hint: str) -> Invalid:
    return Invalid(code, message, hint=hint, fields=(FieldError(path, code, message),))


def _unknown_tier(name: str, tiers: Catalogue) -> Invalid:
    choices = ", ".join(tiers.offers)
    return _invalid(
        "tier", "unknown_tier", f'There is no tier "{name}".', f"Choose one of: {choices}."
    )


def _not_here(offer: Offer, tiers: Catalogue) -> Refused:
    tier = offer.tier
    if tier.device is DeviceKind.CPU:
        message = "This machine's processor is not offered as a tier."
    elif tier.count > 1:
        message = f"This machine does not have {tier.count} GPUs of the kind {tier.gpu or 'asked'}."
    else:
        message = f"No GPU here is an {tier.gpu}." if tier.gpu else "There is no such GPU here."
    choices = ", ".join(tiers.names_here)
    hint = f"Choose one of: {choices}." if choices else "This machine offers no tier at all."
    return Refused(
        "tier_not_here", message, hint=hint, fields=(FieldError("tier", "tier_not_here", message),)
    )


def _engine_faults(spec: DeploymentSpec, tier: Tier) -> list[Invalid]:
    try:
        engine = engine_for(tier.device, spec.engine.version)
    except Invalid as e:
        return [_invalid("engine.version", e.code, e.message, e.hint)]
    method = resolve_method(spec)
    if method is Method.OFF or method in engine.methods:
        return []
    choices = ", ".join(sorted(engine.methods))
    return [
        _invalid(
            "speculation.method",
            "unsupported_method",
            f"vLLM {engine.version} on {tier.device} does not speculate by {method}.",
            f"Supported there: {choices}, and off.",
        )
    ]


def _model_faults(spec: DeploymentSpec, registered: Collection[str]) -> list[Invalid]:
    found = []
    for path, text in (("model", spec.model), ("draft_model", spec.draft_model)):
        if text is None:
            continue
        ref = parse_model_ref(text)
        if ref.source is ModelSource.DEMO and ref.name not in DEMO_MODELS:
            choices = ", ".join(f"demo/{n}" for n in DEMO_MODELS)
            found.append(
                _invalid(
                    path,
                    "unknown_model",
                    f"There is no demo model {ref}.",
                    f"There are: {choices}.",
                )
            )
        if ref.source is ModelSource.LOCAL and ref.name not in registered:
            found.append(
                _invalid(
                    path,
                    "unknown_model",
                    f"No model is registered as {ref}.",
                    f"Register it: slipstream models add {ref.name} --path FOLDER.",
                )
            )
    return found
