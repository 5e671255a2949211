"""API keys: made, listed, revoked; and from a key to who is calling."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta

from controlplane.auth.keys import Key, is_presentable, lookup_of, make_key, verify
from controlplane.auth.principals import Action, Principal, Role
from controlplane.errors import NotFound, Refused, Unauthenticated
from controlplane.persistence import keys
from controlplane.persistence.changes import raise_epoch
from controlplane.persistence.tables import ApiKey
from controlplane.services.deployments import new_id
from controlplane.services.site import Site


@dataclass(frozen=True, slots=True)
class NewKey:
    """A stored key with its text, which is shown this once."""

    row: ApiKey
    text: str = field(repr=False)


def authenticate(site: Site, text: str) -> Principal:
    """Who holds the key `text`. Raises Unauthenticated; it doesn't say what is wrong with a
    key that has the right form."""
    if not is_presentable(text):
        raise unauthenticated("This is no API key, or a part of it is missing.")
    with site.begin() as session:
        row = keys.by_lookup(session, lookup_of(text))
        if row is None or not verify(text, row.digest):
            raise unauthenticated("This API key is unknown, revoked or expired.")
        return principal_of(row)


def principal_of(row: ApiKey) -> Principal:
    return Principal(row.workspace, row.id, row.name, Role(row.role))


def unauthenticated(message: str) -> Unauthenticated:
    return Unauthenticated(
        "unauthenticated",
        message,
        hint="Send Authorization: Bearer KEY, or sign in with the link of: slipstream open.",
    )


def listed(site: Site, by: Principal) -> list[ApiKey]:
    by.require(Action.MANAGE_KEYS)
    with site.begin() as session:
        return keys.listed(session, by.workspace)


def create(
    site: Site, by: Principal, *, name: str, role: Role, expires_in: timedelta | None
) -> NewKey:
    """A new key of the caller's workspace. Gateways know it from the new epoch on."""
    by.require(Action.MANAGE_KEYS)
    key: Key = make_key()
    with site.begin() as session:
        row = keys.add(
            session,
            key_id=new_id("key"),
            workspace=by.workspace,
            name=name,
            role=str(role),
            lookup=key.lookup,
            digest=key.digest,
            expires_in=expires_in,
        )
        raise_epoch(session)
    return NewKey(row, key.text)


def revoke(site: Site, by: Principal, key_id: str) -> None:
    """Revoke a key for good; repeating is a no-op. Raises Refused for the last admin key that
    does not expire: nobody could make another one."""
    by.require(Action.MANAGE_KEYS)
    with site.begin() as session:
        keys.lock_workspace(session, by.workspace)
        plain = key_id.isascii() and key_id.isprintable()
        row = keys.find(session, by.workspace, key_id) if plain else None
        if row is None:
            raise NotFound(
                "key_not_found", "There is no such key.", hint="See: slipstream keys ls."
            )
        if row.revoked_at is not None:
            return
        last = keys.count_lasting(session, by.workspace, Role.ADMIN, besides=row.id) == 0
        if row.role == Role.ADMIN and row.expires_at is None and last:
            raise Refused(
                "last_admin_key",
                "This is the last admin key that does not expire.",
                hint="Make another admin key first: slipstream keys create NAME --role admin.",
            )
        keys.revoke(session, row)
        raise_epoch(session)
