"""A deployment spec and its JSON form (INTERFACES: "The deployment, in JSON"), both ways.

Every rule on a single value stands here; what needs the installation (does the tier exist,
is the model registered) is checked by the services.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import timedelta
from enum import StrEnum
from typing import Any, TypeVar

from controlplane.domain.deployment import (
    DeploymentSpec,
    EngineChoice,
    Method,
    Replicas,
    ScaleDown,
    ScaleDownPolicy,
    Speculation,
    Vocabulary,
    Wake,
    WakeMode,
)
from controlplane.domain.durations import format_duration, parse_duration
from controlplane.domain.engine_args import ALLOWED_ARGS
from controlplane.domain.model_refs import is_revision, parse_model_ref
from controlplane.domain.naming import NAME_RULE, is_name
from controlplane.errors import FieldError, Invalid

MOST_TOKENS = 16
MOST_WAITING = 10_000
LONGEST_CONTEXT = 10_000_000
MOST_LABELS = 32
_LABEL_KEY = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._/-]{0,61}[A-Za-z0-9])?")
_SCALE_DOWN_FORM = "{policy: never} or {policy: idle, after: 1h}"
_TOKEN_LIKE = re.compile(r"(hf|sl|sk|api)[_-].*", re.IGNORECASE)
_Choice = TypeVar("_Choice", bound=StrEnum)


class _Reader:
    """Reads one JSON object strictly, and gathers every fault with its path."""

    def __init__(self, raw: Any, path: str, faults: list[FieldError]) -> None:
        self.path, self.faults = path, faults
        self.raw: Mapping[str, Any] = raw if isinstance(raw, Mapping) else {}
        self.seen: set[str] = set()
        if not isinstance(raw, Mapping):
            self._fault("", "type", "An object is expected here.")

    def _fault(self, key: str, code: str, detail: str) -> None:
        path = ".".join(part for part in (self.path, key) if part)
        self.faults.append(FieldError(path, code, detail))

    def take(self, key: str, kind: type, default: Any, expects: str) -> Any:
        """The value at `key`, or `default` where it is missing, null or of another type."""
        self.seen.add(key)
        value = self.raw.get(key)
        if value is None:
            if key in self.raw and default is not None:
                self._fault(key, "null", f"{expects} is expected here, or nothing at all.")
            return default
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            self._fault(key, "type", f"{expects} is expected here.")
            return default
        return value

    def text(self, key: str, *, required: bool = False) -> str | None:
        value = self.take(key, str, None, "A text")
        if value is None and required and not any(f.path == key for f in self.faults):
            self._fault(key, "required", f'"{key}" is required.')
        return value if isinstance(value, str) else None

    def number(self, key: str, default: int | None, low: int, high: int) -> int | None:
        value = self.take(key, int, default, "A whole number")
        if value is not None and not low <= value <= high:
            self._fault(key, "range", f"{key} is from {low} to {high}.")
            return default
        return value if isinstance(value, int) else default

    def choice(self, key: str, options: type[_Choice], default: _Choice) -> _Choice:
        value = self.take(key, str, default, "A text")
        if value not in list(options):
            self._fault(key, "choice", f"{key} is one of: {', '.join(options)}.")
            return default
        return options(value)

    def duration(self, key: str, default: timedelta | None) -> timedelta | None:
        value = self.take(key, str, None, 'A duration such as "15m"')
        return default if value is None else self.parsed(key, value, parse_duration, default)

    def parsed(self, key: str, value: str, parse: Callable[[str], Any], default: Any) -> Any:
        try:
            return parse(value)
        except ValueError as e:
            self._fault(key, "form", str(e))
            return default

    def part(self, key: str, example: str = "") -> _Reader:
        """The object at `key` (empty where it is missing)."""
        expects = f"An object such as {example}" if example else "An object"
        return _Reader(self.take(key, Mapping, {}, expects), key, self.faults)

    def check(self, key: str, right: bool, code: str, detail: str) -> None:
        if not right:
            self._fault(key, code, detail)

    def refuse_unknown(self) -> None:
        for key in self.raw:
            if key not in self.seen:
                shown = str(key)[:60].encode("unicode_escape").decode()
                self._fault(shown, "unknown_field", f'There is no field "{shown}" here.')


def parse_spec(raw: Any, *, default_tier: str | None = None) -> DeploymentSpec:
    """The spec that `raw` (decoded JSON) states, with defaults filled in.

    Raises Invalid("invalid_spec") with one FieldError for each fault: unknown fields, wrong
    types, values out of range. Nothing is coerced: `"3"` is no number and `true` is no name.
    """
    faults: list[FieldError] = []
    r = _Reader(raw, "", faults)
    name = r.text("name", required=True)
    if name is not None:
        r.check("name", is_name(name), "name", f"A name is {NAME_RULE}.")
    tier = r.text("tier", required=default_tier is None) or default_tier
    if tier is not None:
        r.check("tier", is_name(tier), "name", f"A tier's name is {NAME_RULE}.")
    model, draft = _model(r, "model", required=True), _model(r, "draft_model", required=False)
    if draft is not None:
        r.check("draft_model", draft != model, "same_model", "A draft must differ from its target.")
    revision = r.text("revision")
    if revision is not None:
        r.check(
            "revision", is_revision(revision), "form", "A revision is a branch, a tag or a commit."
        )
    hub_token = r.text("hub_token")
    if hub_token is not None:
        right = is_name(hub_token) and not _TOKEN_LIKE.fullmatch(hub_token)
        r.check("hub_token", right, "not_a_name", "hub_token is a secret's name, never a token.")
    spec = DeploymentSpec(
        name=name or "",
        model=model or "",
        tier=tier or "",
        draft_model=draft,
        speculation=_speculation(r.part("speculation"), has_draft=draft is not None),
        scale_down=_scale_down(r.part("scale_down", _SCALE_DOWN_FORM)),
        wake=_wake(r.part("wake")),
        replicas=_replicas(r.part("replicas")),
        context_length=r.number("context_length", None, 1, LONGEST_CONTEXT),
        revision=revision,
        hub_token=hub_token,
        engine=_engine(r.part("engine")),
        labels=_labels(r.part("labels")),
    )
    r.refuse_unknown()
    if faults:
        raise Invalid(
            "invalid_spec",
            f"The spec is wrong at {faults[0].path or 'its root'}: {faults[0].detail}",
            hint="See errors[] for each value that is wrong.",
            fields=tuple(faults),
        )
    return spec


def _model(r: _Reader, key: str, *, required: bool) -> str | None:
    text = r.text(key, required=required)
    if text is None:
        return None
    ref = r.parsed(key, text, parse_model_ref, None)
    return None if ref is None else str(ref)


def _speculation(r: _Reader, *, has_draft: bool) -> Speculation:
    method = r.choice("method", Method, Method.AUTO)
    tokens: int | None = None
    if r.raw.get("tokens") != "auto":
        tokens = r.number("tokens", None, 1, MOST_TOKENS)
    r.seen.add("tokens")
    needs = method in {Method.DRAFT_MODEL, Method.EAGLE3}
    r.check("method", has_draft or not needs, "no_draft", f"{method} needs a draft_model.")
    without = method in {Method.NGRAM, Method.SUFFIX, Method.MTP}
    r.check("method", not (has_draft and without), "draft_unused", f"{method} uses no draft_model.")
    result = Speculation(
        method=method,
        tokens=tokens,
        vocabulary=r.choice("vocabulary", Vocabulary, Vocabulary.SAME),
        workload=r.text("workload"),
    )
    r.refuse_unknown()
    return result


def _scale_down(r: _Reader) -> ScaleDown:
    policy = r.choice("policy", ScaleDownPolicy, ScaleDownPolicy.IDLE)
    never = policy is ScaleDownPolicy.NEVER
    after = r.duration("after", None if never else timedelta(hours=1))
    r.check("after", not (never and after), "unused", 'The policy "never" takes no "after".')
    r.refuse_unknown()
    return ScaleDown(policy, None if never else after)


def _wake(r: _Reader) -> Wake:
    result = Wake(
        mode=r.choice("mode", WakeMode, WakeMode.HOLD),
        deadline=r.duration("deadline", Wake().deadline) or Wake().deadline,
        max_waiting=r.number("max_waiting", Wake().max_waiting, 1, MOST_WAITING) or 1,
    )
    r.refuse_unknown()
    return result


def _replicas(r: _Reader) -> Replicas:
    low = r.number("min", 1, 1, 64) or 1
    high = r.number("max", low, 1, 64) or low
    r.check("max", high >= low, "range", "max is not below min.")
    r.check("max", high <= low, "not_yet", "Replicas do not follow the load yet: max equals min.")
    r.refuse_unknown()
    return Replicas(low, high)


def _engine(r: _Reader) -> EngineChoice:
    version = r.text("version")
    if version is not None:
        right = re.fullmatch(r"[0-9]{1,4}(\.[0-9]{1,4}){1,3}", version) is not None
        r.check("version", right, "form", "An engine version is digits and dots, as 0.32.0.")
    args = _Reader(r.take("args", Mapping, {}, "An object"), "engine.args", r.faults)
    for key, value in args.raw.items():
        kind = ALLOWED_ARGS.get(key)
        if kind is not None:
            args.seen.add(key)
            right = isinstance(value, kind) and (kind is bool or not isinstance(value, bool))
            args.check(key, right, "type", f"{key} takes a {kind.__name__}.")
            if isinstance(value, str):
                plain = re.fullmatch(r"[A-Za-z0-9_.=-]{1,64}", value) and not value.startswith("-")
                args.check(key, bool(plain), "form", "Letters, digits and _ . = - only.")
        else:
            args.seen.add(key)
            shown = str(key)[:60].encode("unicode_escape").decode()
            what = f"{shown} is set by Slipstream, or not allowed here."
            args.check(shown, False, "unknown_field", what)
    r.refuse_unknown()
    return EngineChoice(version, dict(args.raw))


def _labels(r: _Reader) -> dict[str, str]:
    r.check("", len(r.raw) <= MOST_LABELS, "too_many", f"At most {MOST_LABELS} labels.")
    for key, value in r.raw.items():
        r.seen.add(key)
        right = isinstance(key, str) and _LABEL_KEY.fullmatch(key) is not None
        r.check(str(key)[:60], right, "form", "A label's key is 1-63 of letters, digits . _ / -.")
        plain = isinstance(value, str) and len(value) <= 63 and value.isprintable()
        r.check(str(key)[:60], plain, "form", "A label's value is a text of 63 characters at most.")
    return {str(k): v for k, v in r.raw.items() if isinstance(v, str)}


def spec_to_json(spec: DeploymentSpec) -> dict[str, Any]:
    """`spec` with every default written out; `parse_spec` reads it back unchanged."""
    after = spec.scale_down.after
    return {
        "name": spec.name,
        "model": spec.model,
        "tier": spec.tier,
        "draft_model": spec.draft_model,
        "speculation": {
            "method": str(spec.speculation.method),
            "tokens": spec.speculation.tokens or "auto",
            "vocabulary": str(spec.speculation.vocabulary),
            "workload": spec.speculation.workload,
        },
        "scale_down": {
            "policy": str(spec.scale_down.policy),
            "after": None if after is None else format_duration(after),
        },
        "wake": {
            "mode": str(spec.wake.mode),
            "deadline": format_duration(spec.wake.deadline),
            "max_waiting": spec.wake.max_waiting,
        },
        "replicas": {"min": spec.replicas.min, "max": spec.replicas.max},
        "context_length": spec.context_length,
        "revision": spec.revision,
        "hub_token": spec.hub_token,
        "engine": {"version": spec.engine.version, "args": dict(spec.engine.args)},
        "labels": dict(spec.labels),
    }


def merge_patch(target: Any, patch: Any) -> Any:
    """RFC 7396: objects merge, null removes (so that the default comes back), the rest
    replaces. `target` is left as it is."""
    if not isinstance(patch, Mapping):
        return patch
    merged = dict(target) if isinstance(target, Mapping) else {}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = merge_patch(merged.get(key), value)
    return merged
