"""What the whole system needs in order to work, each part with the age of its last proof."""

from __future__ import annotations

from dataclasses import dataclass

import redis

from controlplane.auth.principals import Action, Principal
from controlplane.errors import Unavailable
from controlplane.persistence import vitals
from controlplane.persistence.vitals import Proof, Vitals
from controlplane.services.site import Site

PING_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Part:
    """`age` is in seconds, None where there never was a proof."""

    name: str
    ok: bool
    age: float | None
    detail: str = ""
    hint: str = ""


def check(site: Site, by: Principal) -> list[Part]:
    """Every part, the dead ones too; only the caller's right can make this fail."""
    by.require(Action.READ)
    return [*_stored_parts(site), _broker(site.settings.stores.redis_url)]


def database_answers(site: Site) -> bool:
    try:
        with site.begin() as session:
            vitals.read_clock(session)
    except Unavailable:
        return False
    return True


def _stored_parts(site: Site) -> list[Part]:
    try:
        with site.begin() as session:
            seen = vitals.read(session)
    except Unavailable as e:
        return [Part("database", False, None, e.message, e.hint)]
    return [Part("database", True, 0.0), *_judged(seen, site)]


def _judged(seen: Vitals, site: Site) -> list[Part]:
    sweep = 3 * site.settings.reconcile.sweep_every
    silent = site.settings.traffic.gateway_silent
    sweeps = tuple(p for p in seen.passes if p.id == "sweep")
    restart = "Start it again: slipstream up."
    return [
        _part("workers", seen.workers, sweep, "finished a reconcile or sweep", restart),
        _part("sweep", sweeps, sweep, "swept", restart),
        _part("gateways", seen.gateways, silent, "sent a heartbeat", restart),
    ]


def _part(name: str, proofs: tuple[Proof, ...], limit: float, did: str, hint: str) -> Part:
    if not proofs:
        return Part(name, False, None, f"None ever {did}.", hint)
    age = proofs[0].age
    alive = sum(p.age <= limit for p in proofs)
    ok = alive > 0
    detail = f"{alive} alive." if ok else f"None {did} in the last {limit:g} seconds."
    return Part(name, ok, age, detail, "" if ok else hint)


def _broker(url: str | None) -> Part:
    if url is None:
        return Part("broker", False, None, "No broker is configured.", "Set SLIPSTREAM_REDIS_URL.")
    client = redis.Redis.from_url(
        url, socket_timeout=PING_SECONDS, socket_connect_timeout=PING_SECONDS
    )
    try:
        client.ping()
    except (redis.RedisError, OSError) as e:
        return Part(
            "broker",
            False,
            None,
            f"It does not answer ({type(e).__name__}).",
            "Work goes on by sweeps, slower. Start it again: slipstream up.",
        )
    finally:
        client.close()
    return Part("broker", True, 0.0)
