"""What the rows become by a step: the database's part, in memory."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from controlplane.domain.deployment import Replica, RouteState
from worker.reconciler.step import (
    Drain,
    Place,
    Release,
    Renew,
    Serve,
    Step,
    StopStray,
    Terminate,
    Unserve,
)


def apply_rows(
    rows: list[Replica], epoch: int, step: Step, now: datetime
) -> tuple[list[Replica], int]:
    table = {(r.slot, r.render_hash): r for r in rows}
    epoch += 1
    for action in step.actions:
        row = getattr(action, "row", None)
        if row is None:
            continue
        key = (row.slot, row.render_hash)
        match action:
            case Place() | StopStray():
                assert isinstance(action, StopStray) or key not in table
                table.setdefault(key, row)
            case Release():
                table.pop(key, None)
            case Renew(_, generation):
                table[key] = replace(table[key], generation=generation)
            case Serve(_, endpoint):
                table[key] = replace(
                    table[key], route=RouteState.SERVING, endpoint=endpoint, drain_epoch=None,
                    drain_started_at=None,
                )  # fmt: skip
            case Unserve():
                table[key] = replace(table[key], route=RouteState.PLACED, endpoint=None)
            case Drain():
                table[key] = replace(
                    table[key], route=RouteState.DRAINING, drain_epoch=epoch, drain_started_at=now
                )
            case Terminate():
                first = table[key].terminated_at or now
                table[key] = replace(table[key], route=RouteState.DRAINING, terminated_at=first)
    held = [d for r in table.values() for d in r.devices]
    assert len(held) == len(set(held)), "one device, one replica"
    return list(table.values()), epoch
