"""Keeping the book fresh: load at start, listen, look at the epoch every second."""

from __future__ import annotations

import asyncio
import time
from datetime import datetime
from typing import Any

import psycopg

from controlplane.auth.principals import Principal, Role
from controlplane.domain.deployment import Wake, WakeMode
from controlplane.domain.durations import parse_duration
from controlplane.domain.phases import Desired, Phase
from controlplane.gateway.book import Book
from controlplane.gateway.keyring import Keyring, KnownKey
from controlplane.gateway.routes import Route, RouteTable, Target
from controlplane.persistence import direct
from controlplane.persistence import routes as stored
from controlplane.persistence.direct import Connection
from controlplane.settings import Settings
from controlplane.telemetry import logger

STORE_ERRORS = (psycopg.Error, OSError, TimeoutError)
_CALL_SECONDS = 10.0
_RETRY_SECONDS = 0.25
_log = logger("gateway")


async def keep_fresh(book: Book, settings: Settings) -> None:
    """Never returns. While the database is away, the book goes on with what it knows."""
    info, every = direct.conninfo(settings), settings.traffic.heartbeat_every
    while True:
        try:
            async with asyncio.timeout(_CALL_SECONDS):
                connection = await direct.connect(info, "gateway-routes")
            async with connection:
                await _follow(book, connection, every)
        except STORE_ERRORS as e:
            if book.shown_epoch:
                _log.warning("routes_not_heard", error=type(e).__name__)
            book.lost()
        await asyncio.sleep(_RETRY_SECONDS)


async def _follow(book: Book, connection: Connection, every: float) -> None:
    async with asyncio.timeout(_CALL_SECONDS):
        await stored.listen(connection)
    while True:
        async with asyncio.timeout(_CALL_SECONDS):
            if await stored.epoch(connection) != book.shown_epoch:
                facts = await stored.load(connection)
                table = to_table(facts, book.table)
                book.take(table, to_keyring(facts.keys, time.monotonic()))
        await stored.wait_for_notice(connection, every)


def to_table(facts: stored.Facts, before: RouteTable) -> RouteTable:
    """The table that `facts` make. How long a start takes is kept from `before` where a
    sleeping deployment's row no longer says it."""
    targets: dict[str, list[Target]] = {}
    for s in facts.serving:
        targets.setdefault(s.deployment_id, []).append(
            Target(f"{s.slot}-{s.render_hash}", s.endpoint)
        )
    routes = []
    for d in facts.deployments:
        known = before.by_id(d.id)
        routes.append(
            Route(
                id=d.id,
                workspace=d.workspace,
                name=d.name,
                phase=Phase(d.phase),
                desired=Desired(d.desired),
                reason=d.reason,
                message=d.message,
                hint=d.hint,
                wake=read_wake(d.wake),
                targets=tuple(targets.get(d.id, ())),
                engine_key=d.engine_key,
                created=int(d.created_at.timestamp()),
                start_seconds=_start_seconds(d) or (known.start_seconds if known else None),
            )
        )
    return RouteTable(facts.epoch, routes)


def to_keyring(keys: list[stored.KeyFacts], now: float) -> Keyring:
    """A role that this version does not know may do nothing: its key is left out."""
    return Keyring(
        KnownKey(
            lookup=k.lookup,
            digest=k.digest,
            principal=Principal(k.workspace, k.id, k.name, Role(k.role)),
            expires_at=None if k.expires_in is None else now + k.expires_in,
        )
        for k in keys
        if k.role in list(Role)
    )


def read_wake(raw: Any) -> Wake:
    """The wake rule of a stored spec, with the default for whatever can't be read: one odd
    row must not keep the others from being served."""
    default = Wake()
    said = raw if isinstance(raw, dict) else {}
    mode, most = said.get("mode"), said.get("max_waiting")
    try:
        deadline = parse_duration(str(said.get("deadline")))
    except ValueError:
        deadline = default.deadline
    return Wake(
        mode=WakeMode(mode) if mode in list(WakeMode) else default.mode,
        deadline=deadline,
        max_waiting=most if isinstance(most, int) and most > 0 else default.max_waiting,
    )


def _start_seconds(d: stored.DeploymentFacts) -> float | None:
    try:
        began = datetime.fromisoformat(d.up_since or "")
        ready = datetime.fromisoformat(d.first_ready_at or "")
        seconds = (ready - began).total_seconds()
    except (ValueError, TypeError):
        return None
    return seconds if seconds > 0 else None
