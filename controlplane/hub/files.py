"""Which of a model's files an engine needs.

Safetensors rather than a pickle of the same weights; tokenizers, configs and templates; never
code, because none from a hub is run; never the same weights in another framework's form.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from controlplane.hub.failures import BadWeights

# Beside the weights: JSON (configs, tokenizers, indexes), vocabularies, sentencepiece models,
# chat templates.
_BESIDE = (".json", ".txt", ".model", ".jinja", ".tiktoken")
_ENGINE_FORMS = (".safetensors", ".bin", ".pt")
# Folders that repeat the weights in a form of their own.
_OTHER_FORMS = {"original", "metal", "onnx", "openvino", "coreml", "flax", "tf", "gguf"}
# Layers that an embedding model keeps in numbered folders: 1_Pooling, 2_Dense.
_LAYER_FOLDER = re.compile(r"\d+_[A-Za-z]+")
# What training leaves behind, named like weights.
_TRAINING = re.compile(r"(training_args|optimizer|scheduler|rng_state|random_states).*")


@dataclass(frozen=True, slots=True)
class HubFile:
    """One file of a revision. `sha256` where it is stored as a large file; `blob` is its name
    in a cache."""

    path: str
    size: int
    blob: str
    sha256: str | None = None


def wanted_files(files: Sequence[HubFile]) -> tuple[HubFile, ...]:
    """The files to fetch, in the order given.

    Raises BadWeights when they hold no configuration, or no weights that an engine loads.
    """
    chosen = wanted_paths([f.path for f in files])
    return tuple(f for f in files if f.path in chosen)


def wanted_paths(paths: Iterable[str]) -> frozenset[str]:
    """As `wanted_files`, of paths."""
    known = [p for p in paths if _is_plain(p)]
    weights = _weights([p for p in known if "/" not in p])
    if not {"config.json", "params.json"} & set(known):
        raise BadWeights("There is no config.json: this is not a model that an engine can load.")
    if not weights:
        raise BadWeights("There are no weights that an engine can load (safetensors).")
    return weights | {p for p in known if _is_beside(p)}


def _is_plain(path: str) -> bool:
    """Stays below its folder, and hides nothing."""
    return all(part and not part.startswith(".") for part in path.split("/"))


def _weights(root: Sequence[str]) -> frozenset[str]:
    safetensors = [p for p in root if p.endswith(".safetensors")]
    if safetensors:
        main = [p for p in safetensors if not p.startswith("consolidated")]
        return frozenset(main or safetensors)
    for form in _ENGINE_FORMS[1:]:
        pickles = [p for p in root if p.endswith(form) and not _TRAINING.match(p)]
        if pickles:
            main = [p for p in pickles if not p.startswith("consolidated")]
            return frozenset(main or pickles)
    return frozenset()


def _is_beside(path: str) -> bool:
    *folders, name = path.split("/")
    if _OTHER_FORMS & set(folders):
        return False
    if name.endswith(".safetensors"):
        return len(folders) == 1 and _LAYER_FOLDER.fullmatch(folders[0]) is not None
    return name.endswith(_BESIDE)
