"""What a folder with a model says about itself. Reads files only."""

from __future__ import annotations

import json
from pathlib import Path

FACTS_FILE = "slipstream.json"
LARGEST_FACTS = 20_000_000  # bytes; the index of a model with thousands of experts is a few MB


def read_json(path: Path) -> dict[str, object] | None:
    """The JSON object in a file; None when there is no such file, or no object in it."""
    try:
        if path.stat().st_size > LARGEST_FACTS:
            return None
        return parse_object(path.read_bytes())
    except OSError:
        return None


def parse_object(content: bytes) -> dict[str, object] | None:
    """The JSON object that `content` is; None when it is none."""
    try:
        found = json.loads(content)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def is_heterogeneous(folder: Path) -> bool:
    """True when the model says that it drafts for targets of other vocabularies."""
    facts = read_json(folder / FACTS_FILE)
    return facts is not None and facts.get("vocabulary") == "heterogeneous"


def fault_of(folder: Path) -> str | None:
    """Why no engine can load what lies in `folder`, in one sentence; None when nothing
    speaks against it."""
    try:
        if not folder.is_dir():
            return "The model's folder is not there."
        if not ((folder / "config.json").is_file() or (folder / "params.json").is_file()):
            return "The model's folder has no config.json."
        return _missing_weights(folder)
    except OSError:
        return "The model's folder can't be read."


def _missing_weights(folder: Path) -> str | None:
    for form in ("model.safetensors", "pytorch_model.bin"):
        index = read_json(folder / f"{form}.index.json")
        shards = index.get("weight_map") if index else None
        if isinstance(shards, dict):
            missing = [s for s in {str(v) for v in shards.values()} if not _lies_in(folder, s)]
            if missing:
                return f"{len(missing)} of the files that {form}.index.json names are missing."
            return None
    forms = ("*.safetensors", "*.bin", "*.pt")
    if not any(p.is_file() for form in forms for p in folder.glob(form)):
        return "The model's folder has no weights."
    return None


def _lies_in(folder: Path, name: str) -> bool:
    return "/" not in name and (folder / name).is_file()
