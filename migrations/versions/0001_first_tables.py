"""First tables: workspaces, keys, deployments with their status, replicas, routes, intents."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "gateways",
        sa.Column("id", sa.String(length=64), nullable=False),
        sa.Column(
            "started_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
        ),
        sa.Column(
            "seen_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False
        ),
        sa.Column("epoch", sa.BigInteger(), nullable=False),
        sa.Column("activity", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_gateways")),
    )
    op.create_table(
        "installation",
        sa.Column("id", sa.String(length=40), nullable=False),
        sa.Column(
            "created_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_installation")),
    )
    op.create_table(
        "local_models",
        sa.Column("name", sa.String(length=40), nullable=False),
        sa.Column("path", sa.Text(), nullable=False),
        sa.Column(
            "created_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
        ),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_local_models")),
    )
    op.create_table(
        "passes",
        sa.Column("name", sa.String(length=40), nullable=False),
        sa.Column("ran_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("ran_by", sa.String(length=100), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_passes")),
    )
    op.create_table(
        "route_epoch",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("epoch", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_route_epoch")),
    )
    op.create_table(
        "workers",
        sa.Column("id", sa.String(length=100), nullable=False),
        sa.Column(
            "started_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
        ),
        sa.Column(
            "finished_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_workers")),
    )
    op.create_table(
        "workspaces",
        sa.Column("id", sa.String(length=64), nullable=False),
        sa.Column(
            "created_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_workspaces")),
    )
    op.create_table(
        "api_keys",
        sa.Column("id", sa.String(length=40), nullable=False),
        sa.Column("workspace", sa.String(length=64), nullable=False),
        sa.Column("name", sa.String(length=64), nullable=False),
        sa.Column("role", sa.String(length=16), nullable=False),
        sa.Column("lookup", sa.String(length=16), nullable=False),
        sa.Column("digest", sa.String(length=64), nullable=False),
        sa.Column(
            "created_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
        ),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("revoked_at", sa.DateTime(timezone=True), nullable=True),
        sa.ForeignKeyConstraint(
            ["workspace"], ["workspaces.id"], name=op.f("fk_api_keys_workspace")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_api_keys")),
        sa.UniqueConstraint("lookup", name=op.f("uq_api_keys_lookup")),
    )
    op.create_table(
        "deployments",
        sa.Column("id", sa.String(length=40), nullable=False),
        sa.Column("workspace", sa.String(length=64), nullable=False),
        sa.Column("name", sa.String(length=40), nullable=False),
        sa.Column("spec", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("generation", sa.Integer(), nullable=False),
        sa.Column("desired", sa.String(length=16), nullable=False),
        sa.Column(
            "created_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
        ),
        sa.Column(
            "updated_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
        ),
        sa.Column("released_at", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint(
            "desired IN ('running', 'paused', 'deleted')", name=op.f("ck_deployments_desired")
        ),
        sa.ForeignKeyConstraint(
            ["workspace"], ["workspaces.id"], name=op.f("fk_deployments_workspace")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_deployments")),
    )
    op.create_index(
        "ix_deployments_created_at_id", "deployments", ["created_at", "id"], unique=False
    )
    op.create_index(
        "uq_deployments_workspace_name",
        "deployments",
        ["workspace", "name"],
        unique=True,
        postgresql_where=sa.text("released_at IS NULL"),
    )
    op.create_table(
        "deployment_status",
        sa.Column("deployment_id", sa.String(length=40), nullable=False),
        sa.Column("phase", sa.String(length=16), nullable=False),
        sa.Column("reason", sa.String(length=40), nullable=True),
        sa.Column("message", sa.Text(), nullable=False),
        sa.Column("hint", sa.Text(), nullable=False),
        sa.Column(
            "since", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False
        ),
        sa.Column("observed_generation", sa.Integer(), nullable=False),
        sa.Column("handled_intent", sa.BigInteger(), nullable=False),
        sa.Column("last_active_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("waiting_since", sa.DateTime(timezone=True), nullable=True),
        sa.Column("detail", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("engine_key", sa.String(length=64), nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column(
            "updated_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
        ),
        sa.Column("lease_token", sa.BigInteger(), nullable=False),
        sa.Column("lease_owner", sa.String(length=100), nullable=True),
        sa.Column("lease_until", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint(
            "phase IN ('queued', 'starting', 'ready', 'updating', 'degraded', 'draining',"
            " 'asleep', 'waking', 'paused', 'failed', 'stopping', 'deleted')",
            name=op.f("ck_deployment_status_phase"),
        ),
        sa.ForeignKeyConstraint(
            ["deployment_id"],
            ["deployments.id"],
            name=op.f("fk_deployment_status_deployment_id"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("deployment_id", name=op.f("pk_deployment_status")),
    )
    op.create_index("ix_deployment_status_phase", "deployment_status", ["phase"], unique=False)
    op.create_table(
        "events",
        sa.Column("number", sa.BigInteger(), sa.Identity(always=False), nullable=False),
        sa.Column("deployment_id", sa.String(length=40), nullable=False),
        sa.Column("workspace", sa.String(length=64), nullable=False),
        sa.Column(
            "at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False
        ),
        sa.Column("kind", sa.String(length=32), nullable=False),
        sa.Column("phase", sa.String(length=16), nullable=True),
        sa.Column("reason", sa.String(length=40), nullable=True),
        sa.Column("message", sa.Text(), nullable=False),
        sa.Column("actor", sa.String(length=100), nullable=False),
        sa.ForeignKeyConstraint(
            ["deployment_id"],
            ["deployments.id"],
            name=op.f("fk_events_deployment_id"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("number", name=op.f("pk_events")),
    )
    op.create_index(
        "ix_events_deployment_id_number", "events", ["deployment_id", "number"], unique=False
    )
    op.create_table(
        "idempotency_keys",
        sa.Column("workspace", sa.String(length=64), nullable=False),
        sa.Column("key", sa.String(length=128), nullable=False),
        sa.Column("request_digest", sa.String(length=64), nullable=False),
        sa.Column("deployment_id", sa.String(length=40), nullable=False),
        sa.Column(
            "created_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
        ),
        sa.ForeignKeyConstraint(
            ["deployment_id"],
            ["deployments.id"],
            name=op.f("fk_idempotency_keys_deployment_id"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("workspace", "key", name=op.f("pk_idempotency_keys")),
    )
    op.create_table(
        "intents",
        sa.Column("number", sa.BigInteger(), sa.Identity(always=False), nullable=False),
        sa.Column("deployment_id", sa.String(length=40), nullable=False),
        sa.Column("kind", sa.String(length=8), nullable=False),
        sa.Column("asked_by", sa.String(length=100), nullable=False),
        sa.Column("reason", sa.String(length=40), nullable=True),
        sa.Column(
            "created_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
        ),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=True),
        sa.ForeignKeyConstraint(
            ["deployment_id"],
            ["deployments.id"],
            name=op.f("fk_intents_deployment_id"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("number", name=op.f("pk_intents")),
    )
    op.create_index(
        "ix_intents_deployment_id_number", "intents", ["deployment_id", "number"], unique=False
    )
    op.create_table(
        "replicas",
        sa.Column("deployment_id", sa.String(length=40), nullable=False),
        sa.Column("slot", sa.Integer(), nullable=False),
        sa.Column("render_hash", sa.String(length=16), nullable=False),
        sa.Column("generation", sa.Integer(), nullable=False),
        sa.Column("devices", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column(
            "placed_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False
        ),
        sa.Column("route", sa.String(length=16), nullable=False),
        sa.Column("endpoint", sa.Text(), nullable=True),
        sa.Column("drain_epoch", sa.BigInteger(), nullable=True),
        sa.Column("drain_started_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("terminated_at", sa.DateTime(timezone=True), nullable=True),
        sa.ForeignKeyConstraint(
            ["deployment_id"],
            ["deployments.id"],
            name=op.f("fk_replicas_deployment_id"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("deployment_id", "slot", "render_hash", name=op.f("pk_replicas")),
    )
    op.create_table(
        "sign_ins",
        sa.Column("digest", sa.String(length=64), nullable=False),
        sa.Column("kind", sa.String(length=8), nullable=False),
        sa.Column("api_key_id", sa.String(length=40), nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(
            ["api_key_id"], ["api_keys.id"], name=op.f("fk_sign_ins_api_key_id")
        ),
        sa.PrimaryKeyConstraint("digest", name=op.f("pk_sign_ins")),
    )
    op.create_table(
        "timers",
        sa.Column("deployment_id", sa.String(length=40), nullable=False),
        sa.Column("due_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(
            ["deployment_id"],
            ["deployments.id"],
            name=op.f("fk_timers_deployment_id"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("deployment_id", name=op.f("pk_timers")),
    )
    op.create_index("ix_timers_due_at", "timers", ["due_at"], unique=False)
    _first_rows()


def _first_rows() -> None:
    op.execute("INSERT INTO workspaces (id) VALUES ('default')")
    op.execute("INSERT INTO route_epoch (id, epoch) VALUES (1, 1)")
    op.execute(
        "INSERT INTO installation (id) VALUES ('ins_' || replace(gen_random_uuid()::text, '-', ''))"
    )


def downgrade() -> None:
    op.drop_index("ix_timers_due_at", table_name="timers")
    op.drop_table("timers")
    op.drop_table("sign_ins")
    op.drop_table("replicas")
    op.drop_index("ix_intents_deployment_id_number", table_name="intents")
    op.drop_table("intents")
    op.drop_table("idempotency_keys")
    op.drop_index("ix_events_deployment_id_number", table_name="events")
    op.drop_table("events")
    op.drop_index("ix_deployment_status_phase", table_name="deployment_status")
    op.drop_table("deployment_status")
    op.drop_index(
        "uq_deployments_workspace_name",
        table_name="deployments",
        postgresql_where=sa.text("released_at IS NULL"),
    )
    op.drop_index("ix_deployments_created_at_id", table_name="deployments")
    op.drop_table("deployments")
    op.drop_table("api_keys")
    op.drop_table("workspaces")
    op.drop_table("workers")
    op.drop_table("route_epoch")
    op.drop_table("passes")
    op.drop_table("local_models")
    op.drop_table("installation")
    op.drop_table("gateways")
