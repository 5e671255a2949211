"""The keys that callers may show, in memory. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from controlplane.auth.keys import is_presentable, lookup_of, verify
from controlplane.auth.principals import Principal


@dataclass(frozen=True, slots=True)
class KnownKey:
    """`expires_at` is on this process's monotonic clock; None: never."""

    lookup: str
    digest: str = field(repr=False)
    principal: Principal
    expires_at: float | None = None


class Keyring:
    """The keys in force as of one epoch. Nothing in it ever changes."""

    __slots__ = ("_keys",)

    def __init__(self, keys: Iterable[KnownKey] = ()) -> None:
        self._keys = {k.lookup: k for k in keys}

    def who(self, text: str, now: float) -> Principal | None:
        """Whose key `text` is; None when it is nobody's, revoked or expired."""
        if not is_presentable(text):
            return None
        key = self._keys.get(lookup_of(text))
        if key is None or not verify(text, key.digest):
            return None
        if key.expires_at is not None and now >= key.expires_at:
            return None
        return key.principal


def bearer(header: bytes | None) -> str:
    """The token of an Authorization header; empty when it carries none."""
    if header is None:
        return ""
    scheme, _, token = header.decode("latin-1").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""
