"""Deployments as tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from controlplane.cli.output import ago, facts, grid, lit, named, plain
from controlplane.cli.waiting import how_far, status_of

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.text import Text


def listing(deployments: Sequence[Mapping[str, Any]]) -> RenderableType:
    """A line each."""
    now = datetime.now(UTC)
    rows: list[tuple[str | Text, ...]] = []
    for d in deployments:
        spec, status = part(d, "spec"), status_of(dict(d))
        rows.append(
            (
                plain(d.get("name")),
                lit(status.get("light"), status.get("phase")),
                plain(status.get("reason")) + how_far(dict(d)),
                plain(spec.get("model")),
                plain(spec.get("draft_model")) or "-",
                plain(spec.get("tier")),
                ago(d.get("last_active_at"), now),
            )
        )
    return grid(("NAME", "PHASE", "WHY", "MODEL", "DRAFT", "TIER", "IDLE"), rows)


def one(deployment: dict[str, Any], *, full: bool) -> RenderableType:
    """One deployment's standing, and with `full` what it is made of."""
    return facts(_facts(deployment, full=full))


def _facts(d: dict[str, Any], *, full: bool) -> Iterator[tuple[str, str | Text]]:
    status, now = status_of(d), datetime.now(UTC)
    yield "Name", plain(d.get("name"))
    yield "Phase", lit(status.get("light"), f"{status.get('phase')}{_since(status, now)}")
    if status.get("reason"):
        yield "Why", plain(status.get("reason")) + how_far(d)
    for word, key in (("", "message"), ("Do", "hint")):
        if status.get(key):
            yield word, named(status.get(key), d.get("name"))
    if full:
        yield from _full(d, status, now)


def _full(d: dict[str, Any], status: Mapping[str, Any], now: datetime) -> Iterator[tuple[str, str]]:
    spec, resolved = part(d, "spec"), part(status, "resolved")
    yield "Model", plain(spec.get("model")) + _at(resolved.get("revision") or spec.get("revision"))
    if spec.get("draft_model"):
        yield "Draft", plain(spec.get("draft_model")) + _at(resolved.get("draft_revision"))
    yield "Speculation", _speculation(part(spec, "speculation"), resolved)
    yield "Tier", plain(spec.get("tier"))
    if resolved.get("engine"):
        yield "Engine", f"vLLM {plain(resolved.get('engine'))}"
    if args := part(part(spec, "engine"), "args"):
        yield "Arguments", ", ".join(f"{plain(k)}={plain(v)}" for k, v in args.items())
    if spec.get("context_length"):
        yield "Context", f"{plain(spec.get('context_length'))} tokens"
    yield "Scale down", _policy(part(spec, "scale_down"), d, now)
    wake = part(spec, "wake")
    yield "Wake", f"{plain(wake.get('mode'))}, at most {plain(wake.get('deadline'))}"
    counts = part(status, "replicas")
    told = [
        f"{counts[k]} {k}" for k in ("ready", "starting", "draining", "failed") if counts.get(k)
    ]
    yield "Replicas", f"{counts.get('wanted', 0)} wanted" + "".join(f", {t}" for t in told)
    if labels := part(spec, "labels"):
        yield "Labels", ", ".join(f"{plain(k)}={plain(v)}" for k, v in labels.items())
    yield "Last active", ago(d.get("last_active_at"), now)
    yield "Made", f"{ago(d.get('created_at'), now)} ago, generation {plain(d.get('generation'))}"
    yield "ID", plain(d.get("id"))


def part(whole: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    """The object at `key`; empty where there is none."""
    found = whole.get(key)
    return found if isinstance(found, Mapping) else {}


def _since(status: Mapping[str, Any], now: datetime) -> str:
    return f" for {ago(status['since'], now)}" if status.get("since") else ""


def _at(revision: object) -> str:
    return f" @ {plain(revision)[:12]}" if revision else ""


def _speculation(asked: Mapping[str, Any], resolved: Mapping[str, Any]) -> str:
    method, tokens = resolved.get("method"), resolved.get("tokens")
    if method is None:
        return f"{plain(asked.get('method'))}, tokens {plain(asked.get('tokens'))}"
    if method == "off":
        return "off"
    across = ", across vocabularies" if resolved.get("heterogeneous") else ""
    return f"{plain(method)}, {plain(tokens)} tokens a step{across}"


def _policy(policy: Mapping[str, Any], d: Mapping[str, Any], now: datetime) -> str:
    after = f" after {plain(policy.get('after'))}" if policy.get("after") else ""
    sleeps = f", in {ago(d['sleeps_at'], now)}" if d.get("sleeps_at") else ""
    return f"{plain(policy.get('policy'))}{after}{sleeps}"
