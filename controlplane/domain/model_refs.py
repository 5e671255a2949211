"""What a person may write where a model is named.

`org/name` or the hub's own page URL for it, `demo/NAME`, or `local/NAME`. Nothing else: a
reference becomes a folder name, an argument and a request path, so the grammar is strict.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

LONGEST = 96  # the hub's own limit for a repository id
HUB_PAGE = "https://huggingface.co/"
_PART = r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?"
_FORM = re.compile(f"({_PART})/({_PART})")
_REVISION = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*(?:/[A-Za-z0-9._-]+)*")
LONGEST_REVISION = 100


class ModelSource(StrEnum):
    HUB = "hub"
    DEMO = "demo"
    LOCAL = "local"


@dataclass(frozen=True, slots=True)
class ModelRef:
    """A model by name. `org` is `demo` or `local` for those sources."""

    source: ModelSource
    org: str
    name: str

    def __str__(self) -> str:
        return f"{self.org}/{self.name}"


def parse_model_ref(text: str) -> ModelRef:
    """The model that `text` names, with the hub's page URL turned into `org/name`.

    Raises ValueError with a sentence for people. The text itself is not repeated there:
    it may be long or hold control characters.
    """
    if text.startswith(HUB_PAGE):
        text = text[len(HUB_PAGE) :].removesuffix("/")
    elif "://" in text:
        raise ValueError(f"Only addresses under {HUB_PAGE} name a model.")
    if len(text) > LONGEST:
        raise ValueError(f"A model ID has {LONGEST} characters at most.")
    found = _FORM.fullmatch(text)
    if not found or ".." in text or "--" in text:
        raise ValueError("A model ID is org/name, demo/NAME or local/NAME.")
    sources = {"demo": ModelSource.DEMO, "local": ModelSource.LOCAL}
    return ModelRef(sources.get(found[1], ModelSource.HUB), found[1], found[2])


def is_revision(text: str) -> bool:
    """True when `text` may be a branch, a tag or a commit. It becomes a path below the cache
    and a request path, so `..` is none."""
    return (
        len(text) <= LONGEST_REVISION and ".." not in text and _REVISION.fullmatch(text) is not None
    )
