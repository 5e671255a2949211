"""Which engine a deployment should run: what was chosen, its hash, and what it lacks. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace

from controlplane.domain.deployment import (
    Deployment,
    DeploymentSpec,
    Method,
    Replica,
    Resolved,
    RouteState,
)
from controlplane.domain.engines import EngineOrder, render_hash, resolve, resolve_method
from controlplane.domain.tiers import Tier
from worker.drivers.base import ReplicaState, WeightsOrder, WeightsState
from worker.reconciler.facts import Facts

LIVES = frozenset({ReplicaState.STARTING, ReplicaState.ANSWERING, ReplicaState.SILENT})


@dataclass(frozen=True, slots=True)
class Rendering:
    """An engine that could be started now, and the hash that tells it from others."""

    render_hash: str
    resolved: Resolved
    model_path: str
    draft_path: str | None


def revision_key(spec: DeploymentSpec) -> str:
    """What a resolved revision belongs to."""
    return f"{spec.model}@{spec.revision or ''}"


def aim(d: Deployment, tier: Tier | None) -> Deployment:
    """The deployment as a driver should look at it: with the engine that it will run on, and
    the commit that its revision was resolved to once, so that a branch that moves moves no
    deployment. Raises Invalid when no engine serves the tier."""
    old = d.status.resolved
    pinned = old.revision if old.revision_of == revision_key(d.spec) else None
    chosen = old if tier is None else choose(d, tier, draft_says_heterogeneous=False)
    return replace(
        d,
        spec=replace(d.spec, revision=pinned or d.spec.revision),
        status=replace(d.status, resolved=chosen),
    )


def choose(d: Deployment, tier: Tier, *, draft_says_heterogeneous: bool) -> Resolved:
    """What is chosen for this generation. Once chosen it stays, also when a newer Slipstream
    would choose otherwise: an upgrade rolls no engine by itself."""
    old = d.status.resolved
    if old.generation == d.generation and old.method is not None:
        return old
    fresh = resolve(d.spec, tier, draft_says_heterogeneous=draft_says_heterogeneous)
    return replace(fresh, generation=d.generation)


def orders(d: Deployment) -> tuple[WeightsOrder, ...]:
    """All weights that the deployment needs, the target first."""
    old = d.status.resolved
    pinned = old.revision if old.revision_of == revision_key(d.spec) else None
    needed = [WeightsOrder(d.spec.model, pinned or d.spec.revision)]
    if d.spec.draft_model is not None and resolve_method(d.spec) is not Method.OFF:
        needed.append(WeightsOrder(d.spec.draft_model))
    return tuple(needed)


def rendering(f: Facts) -> Rendering | None:
    """The engine for the current spec; None while weights lack. Raises Invalid when no engine
    serves the tier."""
    if f.tier is None or f.seen is None:
        return None
    d = f.deployment
    seen = [f.seen.weights.get(o.model) for o in orders(d)]
    ready = [w for w in seen if w and w.state is WeightsState.READY and w.path is not None]
    if len(ready) < len(seen):
        return None
    target, draft = ready[0], ready[1] if len(ready) > 1 else None
    hetero = draft is not None and draft.heterogeneous
    fresh = choose(d, f.tier, draft_says_heterogeneous=hetero)
    assert target.path is not None
    draft_path = draft.path if draft else None
    made = []
    for chosen in (fresh, _carried(d, fresh)):
        resolved = replace(
            chosen,
            revision=target.revision,
            revision_of=revision_key(d.spec) if target.revision else None,
            draft_revision=draft.revision if draft else None,
        )
        made.append(_render(d, f.tier, resolved, target.path, draft_path))
    running = {r.render_hash for r in f.replicas if r.route is not RouteState.DRAINING}
    return made[1] if made[1].render_hash in running else made[0]


def _carried(d: Deployment, fresh: Resolved) -> Resolved:
    """`fresh` with what was chosen before wherever the spec leaves the choice open: if that
    renders what runs already, the edit was one of policy and nothing rolls."""
    old, spec = d.status.resolved, d.spec
    keeps_tokens = spec.speculation.tokens is None and old.method is fresh.method
    keeps_engine = old.engine is not None and spec.engine.version in (None, old.engine)
    return replace(
        fresh,
        tokens=old.tokens if keeps_tokens else fresh.tokens,
        engine=old.engine if keeps_engine else fresh.engine,
        template=old.template or fresh.template,
    )


def _render(
    d: Deployment, tier: Tier, resolved: Resolved, model_path: str, draft_path: str | None
) -> Rendering:
    order = EngineOrder(
        model_path=model_path,
        served_name=d.name,
        tier=tier,
        resolved=resolved,
        draft_path=draft_path,
        context_length=d.spec.context_length,
        args=d.spec.engine.args,
    )
    return Rendering(render_hash(order), resolved, model_path, draft_path)


def wanted_hash(f: Facts, rendered: Rendering | None) -> str | None:
    """The hash that replicas should have; None while that can't be told. What runs already
    for this generation is right by definition: only an edit rolls."""
    for row in f.replicas:
        seen = f.look(row)
        current = row.generation == f.deployment.generation
        if current and row.route is not RouteState.DRAINING and seen and seen.state in LIVES:
            return row.render_hash
    return rendered.render_hash if rendered else None


def lives(f: Facts, row: Replica) -> bool:
    seen = f.look(row)
    return seen is not None and seen.state in LIVES


def answers(f: Facts, row: Replica) -> bool:
    seen = f.look(row)
    return seen is not None and seen.state is ReplicaState.ANSWERING
