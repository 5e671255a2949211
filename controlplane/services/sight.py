"""What a plan can tell of its models without fetching any: how a draft's folder that is here
changes the command, and what nobody looked at."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from controlplane.domain.deployment import DeploymentSpec, Method, Vocabulary
from controlplane.domain.engines import resolve_method
from controlplane.domain.model_refs import ModelSource, parse_model_ref
from controlplane.hub.folder import is_heterogeneous
from controlplane.paths import DataDir


@dataclass(frozen=True, slots=True)
class Unseen:
    """Something that the plan could not look at."""

    code: str
    detail: str
    hint: str


@dataclass(frozen=True, slots=True)
class Sight:
    draft_says_heterogeneous: bool
    unseen: tuple[Unseen, ...]


def look(spec: DeploymentSpec, data: DataDir, registered: Mapping[str, str]) -> Sight:
    """What lies on this machine. `registered` maps names of local models to their folders."""
    unseen = []
    models = [m for m in (spec.model, spec.draft_model) if m is not None]
    remote = [m for m in models if parse_model_ref(m).source is ModelSource.HUB]
    if remote:
        unseen.append(
            Unseen(
                "hub_not_asked",
                f"The hub was not asked about {' and '.join(remote)}.",
                "Whether it is there, and what it takes, a deployment finds out.",
            )
        )
    asks = spec.speculation.vocabulary is Vocabulary.HETEROGENEOUS
    if spec.draft_model is None or resolve_method(spec) is not Method.DRAFT_MODEL or asks:
        return Sight(False, tuple(unseen))
    folder = _folder(spec.draft_model, data, registered)
    if folder is not None and folder.is_dir():
        return Sight(is_heterogeneous(folder), tuple(unseen))
    unseen.append(
        Unseen("draft_not_seen", "The draft's folder may add use_heterogeneous_vocab.", "")
    )
    return Sight(False, tuple(unseen))


def _folder(model: str, data: DataDir, registered: Mapping[str, str]) -> Path | None:
    ref = parse_model_ref(model)
    if ref.source is ModelSource.DEMO:
        return data.demo_models / ref.name
    path = registered.get(ref.name) if ref.source is ModelSource.LOCAL else None
    return Path(path) if path else None
