"""Rows to domain values and back. The only place that knows both forms."""

from __future__ import annotations

from dataclasses import asdict
from datetime import datetime
from typing import Any

from controlplane.domain.deployment import (
    Deployment,
    DeploymentId,
    Method,
    Progress,
    Replica,
    ReplicaCounts,
    Resolved,
    RouteState,
    Status,
)
from controlplane.domain.phases import Desired, Phase
from controlplane.domain.reasons import Reason
from controlplane.domain.spec_json import parse_spec
from controlplane.persistence.tables import DeploymentRow, ReplicaRow, StatusRow

_TIMES = ("sleeps_at", "first_ready_at", "up_since", "retry_at")


def to_deployment(row: DeploymentRow, status: StatusRow) -> Deployment:
    """The two rows as one value. Raises Invalid when the stored spec no longer parses: the
    caller shows that as this deployment's own fault, and goes on with the others."""
    return Deployment(
        id=DeploymentId(row.id),
        workspace=row.workspace,
        name=row.name,
        spec=parse_spec(row.spec),
        generation=row.generation,
        desired=Desired(row.desired),
        created_at=row.created_at,
        updated_at=max(row.updated_at, status.updated_at),
        status=to_status(status),
    )


def to_status(row: StatusRow) -> Status:
    detail = row.detail
    times = {k: _time(detail.get(k)) for k in _TIMES}
    progress, after_drain = detail.get("progress"), detail.get("after_drain")
    return Status(
        phase=Phase(row.phase),
        reason=Reason(row.reason) if row.reason else None,
        message=row.message,
        hint=row.hint,
        since=row.since,
        observed_generation=row.observed_generation,
        replicas=ReplicaCounts(**detail.get("replicas", {})),
        progress=Progress(**progress) if progress else None,
        resolved=_resolved(detail.get("resolved", {})),
        last_active_at=row.last_active_at,
        waiting_since=row.waiting_since,
        attempts=detail.get("attempts", 0),
        given_up=detail.get("given_up", False),
        handled_intent=row.handled_intent,
        after_drain=Phase(after_drain) if after_drain else None,
        **times,
    )


def status_columns(status: Status) -> dict[str, Any]:
    """`status` as values for `StatusRow`'s columns, `detail` included. `version`, the lease
    and `updated_at` are not among them: who writes adds those."""
    return {
        "phase": str(status.phase),
        "reason": str(status.reason) if status.reason else None,
        "message": status.message,
        "hint": status.hint,
        "since": status.since,
        "observed_generation": status.observed_generation,
        "handled_intent": status.handled_intent,
        "last_active_at": status.last_active_at,
        "waiting_since": status.waiting_since,
        "detail": {
            "replicas": asdict(status.replicas),
            "progress": asdict(status.progress) if status.progress else None,
            "resolved": asdict(status.resolved),
            "attempts": status.attempts,
            "given_up": status.given_up,
            "after_drain": str(status.after_drain) if status.after_drain else None,
            **{k: _text(getattr(status, k)) for k in _TIMES},
        },
    }


def to_replica(row: ReplicaRow) -> Replica:
    return Replica(
        deployment_id=DeploymentId(row.deployment_id),
        slot=row.slot,
        render_hash=row.render_hash,
        generation=row.generation,
        devices=tuple(row.devices),
        placed_at=row.placed_at,
        route=RouteState(row.route),
        endpoint=row.endpoint,
        drain_epoch=row.drain_epoch,
        drain_started_at=row.drain_started_at,
        terminated_at=row.terminated_at,
    )


def _resolved(raw: dict[str, Any]) -> Resolved:
    method = raw.get("method")
    return Resolved(**{**raw, "method": Method(method) if method else None})


def _time(text: str | None) -> datetime | None:
    return datetime.fromisoformat(text) if text else None


def _text(moment: datetime | None) -> str | None:
    return moment.isoformat() if moment else None
