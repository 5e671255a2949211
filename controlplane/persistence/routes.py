"""Everything that a gateway serves from, read as of one moment, and the notice of changes."""

from __future__ import annotations

from datetime import datetime
from typing import Any, LiteralString, NamedTuple

from psycopg import sql

from controlplane.persistence.channels import ROUTES
from controlplane.persistence.direct import Connection

_EPOCH = "SELECT epoch FROM route_epoch WHERE id = 1"
_DEPLOYMENTS = """
    SELECT d.id, d.workspace, d.name, d.desired, d.spec -> 'wake', d.created_at,
           s.phase, s.reason, s.message, s.hint, s.engine_key,
           s.detail ->> 'up_since', s.detail ->> 'first_ready_at'
    FROM deployments d JOIN deployment_status s ON s.deployment_id = d.id
    WHERE d.released_at IS NULL
    ORDER BY d.created_at, d.id"""
_SERVING = """
    SELECT deployment_id, slot, render_hash, endpoint FROM replicas
    WHERE route = 'serving' AND endpoint IS NOT NULL
    ORDER BY deployment_id, slot, render_hash"""
_KEYS = """
    SELECT id, workspace, name, role, lookup, digest,
           extract(epoch FROM expires_at - clock_timestamp())::float8
    FROM api_keys
    WHERE revoked_at IS NULL AND (expires_at IS NULL OR expires_at > clock_timestamp())"""


class DeploymentFacts(NamedTuple):
    """`wake` is the spec's own JSON; `up_since` and `first_ready_at` are ISO times or None."""

    id: str
    workspace: str
    name: str
    desired: str
    wake: Any
    created_at: datetime
    phase: str
    reason: str | None
    message: str
    hint: str
    engine_key: str
    up_since: str | None
    first_ready_at: str | None


class ServingFacts(NamedTuple):
    deployment_id: str
    slot: int
    render_hash: str
    endpoint: str


class KeyFacts(NamedTuple):
    """`expires_in` is in seconds from the reading, by the database's clock."""

    id: str
    workspace: str
    name: str
    role: str
    lookup: str
    digest: str
    expires_in: float | None


class Facts(NamedTuple):
    """What stood at `epoch`: all of it or, where reading failed, none."""

    epoch: int
    deployments: list[DeploymentFacts]
    serving: list[ServingFacts]
    keys: list[KeyFacts]


async def load(connection: Connection) -> Facts:
    """Routes, wake rules and keys in one snapshot with the epoch that they belong to."""
    async with connection.transaction():
        await connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
        return Facts(
            epoch=await epoch(connection),
            deployments=[DeploymentFacts(*r) for r in await _rows(connection, _DEPLOYMENTS)],
            serving=[ServingFacts(*r) for r in await _rows(connection, _SERVING)],
            keys=[KeyFacts(*r) for r in await _rows(connection, _KEYS)],
        )


async def epoch(connection: Connection) -> int:
    """The newest committed epoch: when it differs from the loaded one, load again."""
    rows = await _rows(connection, _EPOCH)
    return int(rows[0][0]) if rows else 0


async def listen(connection: Connection) -> None:
    """From now on this connection hears of new epochs."""
    await connection.execute(sql.SQL("LISTEN {}").format(sql.Identifier(ROUTES)))


async def wait_for_notice(connection: Connection, seconds: float) -> None:
    """Return at the next notice, and after `seconds` without one: notices are a hint."""
    async for _ in connection.notifies(timeout=seconds, stop_after=1):
        pass


async def _rows(connection: Connection, query: LiteralString) -> list[Any]:
    return await (await connection.execute(query)).fetchall()
