"""Alembic's entry: runs on the connection that `persistence.migrate` hands over."""

from alembic import context

from controlplane.persistence.tables import Base

connection = context.config.attributes.get("connection")
if connection is None:
    raise SystemExit("Migrate with: python -m controlplane.services.bootstrap")
context.configure(connection=connection, target_metadata=Base.metadata, compare_type=True)
with context.begin_transaction():
    context.run_migrations()
