"""The database's schema: one newest migration, and it makes exactly the declared tables."""

from __future__ import annotations

import io
import tempfile
from collections.abc import Iterator
from pathlib import Path

from alembic import command
from alembic.script import ScriptDirectory
from alembic.util.exc import CommandError

from controlplane.embedded import postgres
from controlplane.persistence.migrate import alembic_config, migrate
from controlplane.persistence.session import make_engine
from controlplane.settings import Settings, Stores


def faults(root: Path) -> Iterator[str]:
    heads = ScriptDirectory.from_config(alembic_config()).get_heads()
    if len(heads) != 1:
        yield f"{len(heads)} newest migrations where one is allowed: {', '.join(heads)}"
        return
    with tempfile.TemporaryDirectory(prefix="slipstream-check-") as text:
        folder = Path(text)
        folder.chmod(0o711)  # as root, the database runs as another user
        place = postgres.place_of(folder / "data", folder / "system")
        server = postgres.start(place, durable=False)
        try:
            yield from _drift(Settings(folder, stores=Stores(database_url=place.url())))
        finally:
            postgres.end(server)


def _drift(settings: Settings) -> Iterator[str]:
    migrate(settings)
    engine = make_engine(settings, "check")
    try:
        with engine.connect() as connection:
            config = alembic_config()
            config.stdout = io.StringIO()
            config.attributes["connection"] = connection
            command.check(config)
    except CommandError as e:
        yield f"the migrations don't make what the tables say: {e}"
    finally:
        engine.dispose()
