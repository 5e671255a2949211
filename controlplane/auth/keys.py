"""API keys: their form, their making, their proof. Pure but for the random source.

A key of ours is `sl_`, then 10 characters that find its row, 43 that are secret (256 bits)
and 6 of a checksum, so that a torn copy is told apart from a revoked key without any look-up.
Only the SHA-256 digest of the whole is stored: the secret is random, so there is nothing to
guess and a slow hash would protect nothing.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
import zlib
from dataclasses import dataclass, field

from controlplane.errors import Invalid

PREFIX = "sl_"
SHORTEST_CHOSEN = 12
_ALPHABET = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_LOOKUP, _SECRET, _CHECK = 10, 43, 6
_FORM = re.compile(rf"{PREFIX}[0-9A-Za-z]{{{_LOOKUP + _SECRET + _CHECK}}}")
_CHOSEN = re.compile(r"[\x21-\x7e]{1,256}")


@dataclass(frozen=True, slots=True)
class Key:
    """A key with what is stored of it. `text` is shown once and kept nowhere."""

    text: str = field(repr=False)
    lookup: str
    digest: str = field(repr=False)


def make_key() -> Key:
    """A fresh random key."""
    body = "".join(secrets.choice(_ALPHABET) for _ in range(_LOOKUP + _SECRET))
    text = PREFIX + body + _checksum(body)
    return Key(text, lookup_of(text), digest_of(text))


def chosen_key(text: str) -> Key:
    """The key that an operator brought along (`SLIPSTREAM_ADMIN_KEY`), in any form.

    Raises Invalid when it is too short to be a secret, or can't travel in a header.
    """
    if not is_presentable(text) or len(text) < SHORTEST_CHOSEN:
        raise Invalid(
            "weak_key",
            f"A chosen key has {SHORTEST_CHOSEN} to 256 visible ASCII characters, and no spaces.",
            hint="Leave SLIPSTREAM_ADMIN_KEY out to have one made.",
        )
    return Key(text, lookup_of(text), digest_of(text))


def is_presentable(text: str) -> bool:
    """True when `text` could be a key at all: what is long, empty or unprintable is not, and
    neither is a key of ours whose checksum is wrong."""
    if _CHOSEN.fullmatch(text) is None:
        return False
    if _FORM.fullmatch(text) is None:
        return True
    body = text[len(PREFIX) : -_CHECK]
    return _checksum(body) == text[-_CHECK:]


def lookup_of(text: str) -> str:
    """What finds the row of the key `text`: a part of a key of ours; of a chosen one, which
    has no part that may be shown, a piece of its digest."""
    if _FORM.fullmatch(text):
        return text[len(PREFIX) : len(PREFIX) + _LOOKUP]
    return "x-" + hashlib.sha256(b"lookup:" + text.encode()).hexdigest()[:12]


def digest_of(text: str) -> str:
    """The SHA-256 of `text` in hex: all that is stored of a key's secret."""
    return hashlib.sha256(text.encode()).hexdigest()


def verify(text: str, digest: str) -> bool:
    """True when `digest` is of the key `text`; takes the same time whichever it is."""
    return hmac.compare_digest(digest_of(text), digest)


def _checksum(body: str) -> str:
    number, digits = zlib.crc32(body.encode()), ""
    for _ in range(_CHECK):
        number, rest = divmod(number, len(_ALPHABET))
        digits = _ALPHABET[rest] + digits
    return digits
