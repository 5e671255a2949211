"""Every derived name, in one place. A name that is too long is shortened and keeps a hash of
the whole, so that two long names never meet."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping

NAME_FORM = re.compile(r"[a-z0-9](?:[a-z0-9._-]{0,38}[a-z0-9])")
NAME_RULE = "2-40 of a-z 0-9 . _ -, starting and ending with a letter or digit"
_CROCKFORD = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"


def is_name(text: str) -> bool:
    """True when `text` may name a deployment, a tier or a registered model."""
    return NAME_FORM.fullmatch(text) is not None


def ulid(milliseconds: int, randomness: bytes) -> str:
    """26 characters that sort by time: 48 bits of Unix milliseconds, then 80 random bits.
    `randomness` must hold 10 bytes. (github.com/ulid/spec)"""
    if len(randomness) != 10:
        raise ValueError("a ULID takes 10 random bytes")
    number = (milliseconds << 80) | int.from_bytes(randomness, "big")
    return "".join(_CROCKFORD[(number >> shift) & 31] for shift in range(125, -1, -5))


def slug(text: str, longest: int = 40) -> str:
    """A DNS label for `text`: lower case, `-` for the rest; shortened with a hash."""
    plain = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")
    if plain == text and 0 < len(plain) <= longest:
        return plain
    digest = hashlib.sha256(text.encode()).hexdigest()[:8]
    return f"{plain[: longest - 9].rstrip('-')}-{digest}".lstrip("-")


def replica_name(deployment_id: str, slot: int, render_hash: str) -> str:
    """One replica's name: of a folder, a lock, a process mark or a Kubernetes Deployment."""
    return f"{deployment_id.lower().replace('_', '-')}-{slot}-{render_hash}"


def content_hash(content: Mapping[str, object]) -> str:
    """Ten hex digits of what `content` says, whatever the order of its keys."""
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:10]


def weights_key(model: str, revision: str | None) -> str:
    """The cache's key for a model at a revision."""
    return slug(f"{model}@{revision or 'main'}", longest=80)
