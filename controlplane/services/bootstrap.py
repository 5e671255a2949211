"""What must be there before anything serves: the schema, the workspace `default`, the
installation's id and an admin key. `python -m controlplane.services.bootstrap` does it."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass, field
from pathlib import Path

from sqlalchemy.orm import Session

from controlplane.auth.keys import Key, chosen_key, digest_of, lookup_of, make_key
from controlplane.auth.principals import Role
from controlplane.errors import AppError, Refused
from controlplane.paths import DataDir
from controlplane.persistence import installation, keys
from controlplane.persistence.changes import raise_epoch
from controlplane.persistence.migrate import migrate
from controlplane.persistence.session import make_engine, make_sessions
from controlplane.services.deployments import new_id
from controlplane.settings import Settings, load_settings

WORKSPACE = "default"
_LOCK = 7_305_119_402_664  # ours alone among advisory locks


@dataclass(frozen=True, slots=True)
class Bootstrapped:
    """`new_admin_key` is a key that was made just now, to be shown once; None: there was one,
    or the operator brought it along."""

    installation: str
    new_admin_key: str | None = field(repr=False)


def bootstrap(settings: Settings) -> Bootstrapped:
    """Bring the database to where everything can start. Any number of processes may call it
    at once, again and again.

    On one machine the CLI's key file is written (0600) when it is missing, or when its key is
    no longer in force. Raises Unavailable without a database, Invalid for a weak chosen key.
    """
    chosen = chosen_key(settings.admin_key) if settings.admin_key else None
    migrate(settings)
    engine = make_engine(settings, "bootstrap")
    try:
        with make_sessions(engine).begin() as session:
            keys.serialize(session, _LOCK)
            keys.add_workspace(session, WORKSPACE)
            mine = installation.ensure(session, new_id("ins"))
            if chosen is not None:
                _add_chosen(session, chosen)
            made = _ensure_key(session, settings, chosen)
        return Bootstrapped(mine, made)
    finally:
        engine.dispose()


def _add_chosen(session: Session, key: Key) -> None:
    """A chosen key that was revoked once stays revoked."""
    if key.digest not in keys.known_digests(session, WORKSPACE, Role.ADMIN):
        _add(session, key, "admin")


def _ensure_key(session: Session, settings: Settings, chosen: Key | None) -> str | None:
    """The text of a key that had to be made. Written to its file before the commit: a file
    whose key was never committed is replaced the next time."""
    if settings.driver == "kubernetes":
        if keys.count_lasting(session, WORKSPACE, Role.ADMIN, besides=""):
            return None
        made = make_key()
        _add(session, made, "admin")
        return made.text
    file = DataDir(settings.data_dir).admin_key
    if _in_force(session, _read(file)):
        return None
    if chosen is not None and _in_force(session, chosen.text):
        _write(file, chosen.text)
        return None
    made = make_key()
    _add(session, made, "admin")
    _write(file, made.text)
    return made.text


def _in_force(session: Session, text: str | None) -> bool:
    row = keys.by_lookup(session, lookup_of(text)) if text else None
    right = row is not None and row.digest == digest_of(text or "")
    return row is not None and right and row.role == Role.ADMIN


def _add(session: Session, key: Key, name: str) -> None:
    keys.add(
        session,
        key_id=new_id("key"),
        workspace=WORKSPACE,
        name=name,
        role=str(Role.ADMIN),
        lookup=key.lookup,
        digest=key.digest,
    )
    raise_epoch(session)


def _read(file: Path) -> str | None:
    try:
        return file.read_text(encoding="ascii").strip() or None
    except (OSError, UnicodeDecodeError):
        return None


def _write(file: Path, text: str) -> None:
    """Replace the file in one step; nobody else can read it at any moment."""
    beside = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        beside.unlink(missing_ok=True)
        handle = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(handle, "w", encoding="ascii") as out:
            out.write(text + "\n")
        beside.replace(file)
    except OSError as e:
        raise Refused(
            "key_file_not_written",
            f"The key file {file} can't be written ({e.strerror}).",
            hint="Check the data directory (SLIPSTREAM_DATA_DIR) and the space on its disk.",
        ) from e


def main() -> None:
    """Prints a key that was made, and nothing when there was one already."""
    try:
        done = bootstrap(load_settings())
    except AppError as e:
        sys.exit(f"{e.message} {e.hint}".strip())
    if done.new_admin_key is not None:
        sys.stdout.write(f"{done.new_admin_key}\n")


if __name__ == "__main__":
    main()
