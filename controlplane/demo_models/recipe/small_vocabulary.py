"""A smaller vocabulary: which tokens stay, and the tokenizer that knows only those."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any


def choose(tokenizer: dict[str, Any], used: Iterable[int], size: int) -> list[int]:
    """The `size` token numbers to keep, in the target's order: special tokens and single
    bytes (so that any text can still be written), then the most used ones."""
    vocabulary: dict[str, int] = tokenizer["model"]["vocab"]
    special = [t["id"] for t in tokenizer["added_tokens"]]
    single = [number for text, number in vocabulary.items() if len(text) == 1]
    common = [number for number, _ in Counter(used).most_common()]
    return sorted(list(dict.fromkeys(special + single + common))[:size])


def write_tokenizer(target: Path, out: Path, kept: list[int]) -> None:
    """The target's tokenizer with only `kept`, numbered anew: same strings, other numbers."""
    tokenizer = json.loads((target / "tokenizer.json").read_text(encoding="utf-8"))
    new_number = {old: new for new, old in enumerate(kept)}
    model = tokenizer["model"]
    vocabulary = {t: new_number[n] for t, n in model["vocab"].items() if n in new_number}
    model["vocab"] = vocabulary
    model["merges"] = [m for m in model["merges"] if _possible(m, vocabulary)]
    for token in tokenizer["added_tokens"]:
        token["id"] = new_number[token["id"]]
    _renumber(tokenizer.get("post_processor"), new_number)
    text = json.dumps(tokenizer, ensure_ascii=False)
    (out / "tokenizer.json").write_text(text, encoding="utf-8")
    for name in ("tokenizer_config.json", "chat_template.jinja"):
        shutil.copy(target / name, out / name)


def _possible(merge: str | list[str], vocabulary: dict[str, int]) -> bool:
    left, right = merge if isinstance(merge, list) else merge.split(" ")
    return left in vocabulary and right in vocabulary and left + right in vocabulary


def _renumber(part: Any, new_number: dict[int, int]) -> None:
    if isinstance(part, dict):
        for key, value in part.items():
            if key == "ids" and isinstance(value, list):
                part[key] = [new_number[n] for n in value]
            else:
                _renumber(value, new_number)
    elif isinstance(part, list):
        for value in part:
            _renumber(value, new_number)
