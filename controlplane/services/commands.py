"""The command line that a deployment's engine is started with, as far as it is known: what
the machine only chooses at the start stands as `<port>` or `<weights of ...>`."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass

from controlplane.domain.deployment import DeploymentSpec, Method, Resolved
from controlplane.domain.engines import EngineOrder, command, resolve
from controlplane.domain.tiers import Tier

_NO_PORT = 0


@dataclass(frozen=True, slots=True)
class ShownCommand:
    """`args` begins with the program; `text` is the same as a shell takes it. No secret is in
    either: the engine's key travels apart."""

    args: tuple[str, ...]
    env: Mapping[str, str]
    text: str
    engine: str | None


def show_command(
    spec: DeploymentSpec,
    tier: Tier,
    resolved: Resolved | None,
    port: int | None = None,
    *,
    draft_says_heterogeneous: bool = False,
) -> ShownCommand:
    """`resolved` is what the machine chose, or None where it has still to choose: then it
    follows from the spec, and from what the draft's folder says. Raises Invalid when no engine
    serves the tier."""
    chosen = resolve(spec, tier, draft_says_heterogeneous=draft_says_heterogeneous)
    if resolved is not None and resolved.method is not None:
        chosen = resolved
    speculates = chosen.method is not Method.OFF
    rendered = command(
        EngineOrder(
            model_path=_weights(spec.model, chosen.revision),
            served_name=spec.name,
            tier=tier,
            resolved=chosen,
            draft_path=_weights(spec.draft_model, chosen.draft_revision)
            if spec.draft_model and speculates
            else None,
            context_length=spec.context_length,
            args=spec.engine.args,
            port=port or _NO_PORT,
        )
    )
    args = tuple("--port=<port>" if a == f"--port={_NO_PORT}" else a for a in rendered.args)
    env = dict(rendered.env)
    words = [*(f"{k}={shlex.quote(v)}" for k, v in env.items()), *map(shlex.quote, ("vllm", *args))]
    return ShownCommand(("vllm", *args), env, " ".join(words), chosen.engine)


def _weights(model: str, revision: str | None) -> str:
    return f"<weights of {model}@{revision}>" if revision else f"<weights of {model}>"
