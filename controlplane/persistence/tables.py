"""Every table. Each column has one writer: `deployments` is the API's, `deployment_status`,
`replicas` and `timers` are the reconciler's, `gateways` a gateway's own row.

Times are `timestamptz` set by the database's clock, so that all that is compared was read
off one clock.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    DateTime,
    ForeignKey,
    Identity,
    Index,
    Integer,
    MetaData,
    String,
    Text,
    func,
    text,
)
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from controlplane.domain.phases import Desired, Phase

NAMING = {
    "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    "uq": "uq_%(table_name)s_%(column_0_N_name)s",
    "ck": "ck_%(table_name)s_%(constraint_name)s",
    "fk": "fk_%(table_name)s_%(column_0_N_name)s",
    "pk": "pk_%(table_name)s",
}


class Base(DeclarativeBase):
    metadata = MetaData(naming_convention=NAMING)
    type_annotation_map = {  # noqa: RUF012 - SQLAlchemy's own form
        datetime: DateTime(timezone=True),
        dict[str, Any]: JSONB,
        list[str]: JSONB,
    }


def _one_of(column: str, values: type[Phase] | type[Desired]) -> CheckConstraint:
    listed = ", ".join(f"'{v}'" for v in values)
    return CheckConstraint(f"{column} IN ({listed})", name=column)


class Workspace(Base):
    __tablename__ = "workspaces"

    id: Mapped[str] = mapped_column(String(64), primary_key=True)
    created_at: Mapped[datetime] = mapped_column(server_default=func.now())


class ApiKey(Base):
    """`lookup` finds the row, `digest` proves the key (SHA-256 of 256 random bits)."""

    __tablename__ = "api_keys"

    id: Mapped[str] = mapped_column(String(40), primary_key=True)
    workspace: Mapped[str] = mapped_column(ForeignKey("workspaces.id"))
    name: Mapped[str] = mapped_column(String(64))
    role: Mapped[str] = mapped_column(String(16))
    lookup: Mapped[str] = mapped_column(String(16), unique=True)
    digest: Mapped[str] = mapped_column(String(64))
    created_at: Mapped[datetime] = mapped_column(server_default=func.now())
    expires_at: Mapped[datetime | None]
    revoked_at: Mapped[datetime | None]


class SignIn(Base):
    """A single-use sign-in link, or the browser session that it became. `digest` is of the
    link's or the cookie's secret."""

    __tablename__ = "sign_ins"

    digest: Mapped[str] = mapped_column(String(64), primary_key=True)
    kind: Mapped[str] = mapped_column(String(8))  # link | session
    api_key_id: Mapped[str] = mapped_column(ForeignKey("api_keys.id"))
    expires_at: Mapped[datetime]


class DeploymentRow(Base):
    """What a person wants. Written by the API only."""

    __tablename__ = "deployments"
    __table_args__ = (
        _one_of("desired", Desired),
        # `released_at` is set by the reconciler with phase deleted: then the name is free.
        Index(
            "uq_deployments_workspace_name",
            "workspace",
            "name",
            unique=True,
            postgresql_where=text("released_at IS NULL"),
        ),
        Index("ix_deployments_created_at_id", "created_at", "id"),
    )

    id: Mapped[str] = mapped_column(String(40), primary_key=True)
    workspace: Mapped[str] = mapped_column(ForeignKey("workspaces.id"))
    name: Mapped[str] = mapped_column(String(40))
    spec: Mapped[dict[str, Any]]
    generation: Mapped[int] = mapped_column(Integer, default=1)
    desired: Mapped[str] = mapped_column(String(16), default=str(Desired.RUNNING))
    created_at: Mapped[datetime] = mapped_column(server_default=func.now())
    updated_at: Mapped[datetime] = mapped_column(server_default=func.now())
    released_at: Mapped[datetime | None]


class StatusRow(Base):
    """What is. Written by the reconciler only, under the newest `lease_token`. `detail` holds
    the rest of `domain.deployment.Status` as JSON; `version` grows with each write that
    changed something, for `If-None-Match` and the change stream."""

    __tablename__ = "deployment_status"
    __table_args__ = (_one_of("phase", Phase), Index("ix_deployment_status_phase", "phase"))

    deployment_id: Mapped[str] = mapped_column(
        ForeignKey("deployments.id", ondelete="CASCADE"), primary_key=True
    )
    phase: Mapped[str] = mapped_column(String(16), default=str(Phase.QUEUED))
    reason: Mapped[str | None] = mapped_column(String(40))
    message: Mapped[str] = mapped_column(Text, default="")
    hint: Mapped[str] = mapped_column(Text, default="")
    since: Mapped[datetime] = mapped_column(server_default=func.now())
    observed_generation: Mapped[int] = mapped_column(Integer, default=0)
    handled_intent: Mapped[int] = mapped_column(BigInteger, default=0)
    last_active_at: Mapped[datetime | None]
    waiting_since: Mapped[datetime | None]
    detail: Mapped[dict[str, Any]] = mapped_column(default=dict)
    engine_key: Mapped[str] = mapped_column(String(64))
    version: Mapped[int] = mapped_column(BigInteger, default=1)
    updated_at: Mapped[datetime] = mapped_column(server_default=func.now())
    lease_token: Mapped[int] = mapped_column(BigInteger, default=0)
    lease_owner: Mapped[str | None] = mapped_column(String(100))
    lease_until: Mapped[datetime | None]


class ReplicaRow(Base):
    """A placed replica and its route. The row is the claim on its devices."""

    __tablename__ = "replicas"

    deployment_id: Mapped[str] = mapped_column(
        ForeignKey("deployments.id", ondelete="CASCADE"), primary_key=True
    )
    slot: Mapped[int] = mapped_column(Integer, primary_key=True)
    render_hash: Mapped[str] = mapped_column(String(16), primary_key=True)
    generation: Mapped[int] = mapped_column(Integer)
    devices: Mapped[list[str]]
    placed_at: Mapped[datetime] = mapped_column(server_default=func.now())
    route: Mapped[str] = mapped_column(String(16), default="placed")
    endpoint: Mapped[str | None] = mapped_column(Text)
    drain_epoch: Mapped[int | None] = mapped_column(BigInteger)
    drain_started_at: Mapped[datetime | None]
    terminated_at: Mapped[datetime | None]


class RouteEpoch(Base):
    """One row. Raised in the transaction that changes a route, a key or a wake rule, so that
    the order of epochs is the order of commits; the same transaction sends NOTIFY routes."""

    __tablename__ = "route_epoch"

    id: Mapped[int] = mapped_column(Integer, primary_key=True)
    epoch: Mapped[int] = mapped_column(BigInteger)


class GatewayRow(Base):
    """A gateway's heartbeat. `activity` maps a deployment's id to
    `{"in_flight", "held", "age_ms", "replicas": {"<slot>-<hash>": in flight}}`."""

    __tablename__ = "gateways"

    id: Mapped[str] = mapped_column(String(64), primary_key=True)
    started_at: Mapped[datetime] = mapped_column(server_default=func.now())
    seen_at: Mapped[datetime] = mapped_column(server_default=func.now())
    epoch: Mapped[int] = mapped_column(BigInteger)
    activity: Mapped[dict[str, Any]] = mapped_column(default=dict)


class IntentRow(Base):
    """A numbered wish for sleep or waking, appended by whoever asks."""

    __tablename__ = "intents"
    __table_args__ = (Index("ix_intents_deployment_id_number", "deployment_id", "number"),)

    number: Mapped[int] = mapped_column(BigInteger, Identity(), primary_key=True)
    deployment_id: Mapped[str] = mapped_column(ForeignKey("deployments.id", ondelete="CASCADE"))
    kind: Mapped[str] = mapped_column(String(8))
    asked_by: Mapped[str] = mapped_column(String(100))
    reason: Mapped[str | None] = mapped_column(String(40))
    created_at: Mapped[datetime] = mapped_column(server_default=func.now())
    expires_at: Mapped[datetime | None]


class EventRow(Base):
    """What happened, append-only: phase steps, changes by people, refused effects."""

    __tablename__ = "events"
    __table_args__ = (Index("ix_events_deployment_id_number", "deployment_id", "number"),)

    number: Mapped[int] = mapped_column(BigInteger, Identity(), primary_key=True)
    deployment_id: Mapped[str] = mapped_column(ForeignKey("deployments.id", ondelete="CASCADE"))
    workspace: Mapped[str] = mapped_column(String(64))
    at: Mapped[datetime] = mapped_column(server_default=func.now())
    kind: Mapped[str] = mapped_column(String(32))
    phase: Mapped[str | None] = mapped_column(String(16))
    reason: Mapped[str | None] = mapped_column(String(40))
    message: Mapped[str] = mapped_column(Text)
    actor: Mapped[str] = mapped_column(String(100))


class TimerRow(Base):
    """When a deployment wants its next look. Due rows become hints; timers live here because
    the broker may lose or double what it holds."""

    __tablename__ = "timers"
    __table_args__ = (Index("ix_timers_due_at", "due_at"),)

    deployment_id: Mapped[str] = mapped_column(
        ForeignKey("deployments.id", ondelete="CASCADE"), primary_key=True
    )
    due_at: Mapped[datetime]


class PassRow(Base):
    """A periodic pass's last run, as a lease: two beats, or a burst of late messages, run it
    once."""

    __tablename__ = "passes"

    name: Mapped[str] = mapped_column(String(40), primary_key=True)
    ran_at: Mapped[datetime]
    ran_by: Mapped[str] = mapped_column(String(100))


class WorkerRow(Base):
    """A worker's proof of life: when it last finished something, not when it last breathed."""

    __tablename__ = "workers"

    id: Mapped[str] = mapped_column(String(100), primary_key=True)
    started_at: Mapped[datetime] = mapped_column(server_default=func.now())
    finished_at: Mapped[datetime] = mapped_column(server_default=func.now())


class LocalModel(Base):
    """Weights that an admin registered, as `local/NAME`."""

    __tablename__ = "local_models"

    name: Mapped[str] = mapped_column(String(40), primary_key=True)
    path: Mapped[str] = mapped_column(Text)
    created_at: Mapped[datetime] = mapped_column(server_default=func.now())


class IdempotencyKey(Base):
    """A POST's answer, kept for a day, so that a repeated one creates nothing."""

    __tablename__ = "idempotency_keys"

    workspace: Mapped[str] = mapped_column(String(64), primary_key=True)
    key: Mapped[str] = mapped_column(String(128), primary_key=True)
    request_digest: Mapped[str] = mapped_column(String(64))
    deployment_id: Mapped[str] = mapped_column(ForeignKey("deployments.id", ondelete="CASCADE"))
    created_at: Mapped[datetime] = mapped_column(server_default=func.now())


class Installation(Base):
    """One row: this installation's id, and when this database's service was last seen to
    start (`pg_postmaster_start_time`), which the settle time counts from."""

    __tablename__ = "installation"

    id: Mapped[str] = mapped_column(String(40), primary_key=True)
    created_at: Mapped[datetime] = mapped_column(server_default=func.now())
