"""A gateway's own row, and the wakes that its requests ask for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from psycopg.types.json import Jsonb

from controlplane.persistence.channels import CHANGES
from controlplane.persistence.direct import Connection

_BEAT = """
    INSERT INTO gateways (id, seen_at, epoch, activity)
    VALUES (%(id)s, clock_timestamp(), %(epoch)s, %(activity)s)
    ON CONFLICT (id) DO UPDATE
    SET seen_at = excluded.seen_at, epoch = excluded.epoch, activity = excluded.activity"""
_LEAVE = "DELETE FROM gateways WHERE id = %(id)s"
# One statement, so one transaction: the wish, the deployment's next look, and the notice.
_WAKE = """
    WITH asked AS (
        INSERT INTO intents (deployment_id, kind, asked_by, expires_at)
        SELECT id, 'wake', %(by)s, clock_timestamp() + make_interval(secs => %(lifetime)s)
        FROM deployments WHERE id = %(deployment)s AND released_at IS NULL
        RETURNING deployment_id
    ), due AS (
        INSERT INTO timers (deployment_id, due_at)
        SELECT deployment_id, clock_timestamp() FROM asked
        ON CONFLICT (deployment_id) DO UPDATE
        SET due_at = least(timers.due_at, excluded.due_at)
    )
    SELECT pg_notify(%(channel)s, deployment_id) FROM asked"""


async def beat(
    connection: Connection, gateway_id: str, epoch: int, activity: Mapping[str, Any]
) -> None:
    """Say that the gateway lives, which epoch it serves from, and what it works on."""
    await connection.execute(
        _BEAT, {"id": gateway_id, "epoch": epoch, "activity": Jsonb(dict(activity))}
    )


async def leave(connection: Connection, gateway_id: str) -> None:
    """Remove the gateway's row: nothing is in flight there, and nothing will be."""
    await connection.execute(_LEAVE, {"id": gateway_id})


async def ask_for_wake(
    connection: Connection, deployment_id: str, *, asked_by: str, lifetime: float
) -> None:
    """Store a wake that holds for `lifetime` seconds, and make the deployment due for a look
    at once. A deployment that is gone by now needs none, and that is no error."""
    await connection.execute(
        _WAKE,
        {
            "deployment": deployment_id,
            "by": asked_by,
            "lifetime": lifetime,
            "channel": CHANGES,
        },
    )
