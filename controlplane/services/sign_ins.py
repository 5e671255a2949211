"""Signing a browser in: a link that works once becomes a session of the key that made it."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from controlplane.auth.keys import digest_of
from controlplane.auth.principals import Action, Principal
from controlplane.persistence import keys, sign_ins
from controlplane.services.keys import authenticate, principal_of, unauthenticated
from controlplane.services.site import Site

LINK_LASTS = timedelta(minutes=15)
SESSION_LASTS = timedelta(days=7)
_LONGEST = 128


@dataclass(frozen=True, slots=True)
class Link:
    """`token` is the link's secret; it is stored nowhere."""

    token: str = field(repr=False)
    expires_at: datetime


def make_link(site: Site, by: Principal) -> Link:
    """A link that signs one browser in as `by`, once."""
    by.require(Action.SIGN_IN_OTHERS)
    token = secrets.token_urlsafe(32)
    with site.begin() as session:
        expires_at = sign_ins.add(
            session,
            digest=digest_of(token),
            kind=sign_ins.LINK,
            api_key_id=by.key_id,
            lasts=LINK_LASTS,
        )
    return Link(token, expires_at)


def make_link_with_key(site: Site, key: str) -> Link:
    """As `make_link`, for a process of this machine that holds a key and no request."""
    return make_link(site, authenticate(site, key))


def redeem(site: Site, token: str) -> str | None:
    """The secret of a new browser session, for a link's unused token; else None."""
    if not 0 < len(token) <= _LONGEST or not token.isascii():
        return None
    secret = secrets.token_urlsafe(32)
    with site.begin() as session:
        key_id = sign_ins.take_link(session, digest_of(token))
        if key_id is None or keys.in_force(session, key_id) is None:
            return None
        sign_ins.add(
            session,
            digest=digest_of(secret),
            kind=sign_ins.SESSION,
            api_key_id=key_id,
            lasts=SESSION_LASTS,
        )
    return secret


def authenticate_session(site: Site, secret: str) -> Principal:
    """Who a browser's session belongs to. It ends with its key. Raises Unauthenticated."""
    if 0 < len(secret) <= _LONGEST and secret.isascii():
        with site.begin() as session:
            key_id = sign_ins.key_of_session(session, digest_of(secret))
            row = keys.in_force(session, key_id) if key_id else None
            if row is not None:
                return principal_of(row)
    raise unauthenticated("This browser's session has ended.")
