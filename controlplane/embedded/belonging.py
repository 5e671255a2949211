"""Which data directory a database outside of it belongs to.

When root runs us the database lies in a folder of its own, found by the data directory's
path. A new data directory at an old path would take up the old database, old admin keys in
force: so both hold the same random id, and one that differs is refused.
"""

from __future__ import annotations

import secrets
import shlex
from pathlib import Path

from controlplane.errors import Refused
from controlplane.paths import DataDir

_MARKER = "database-id"


def check(data_dir: Path, home: Path) -> None:
    """Raises Refused when the database in `home` is of another data directory than the one
    that is at `data_dir` now. Changes nothing."""
    if home == data_dir or not (home / "postgres").exists():
        return
    mine, its = _read(data_dir), _read(home)
    if its is None and (mine is not None or DataDir(data_dir).run.exists()):
        return  # it was made just before a crash, which came before the id
    if mine is None or mine != its:
        raise Refused(
            "database_of_another_data_dir",
            f"{home} holds the database of an earlier {data_dir}, whose admin keys are in force.",
            hint=f"To begin anew, remove it: rm -r {shlex.quote(str(home))}"
            f"\n  To go on with it, put the earlier {data_dir} back in place.",
        )


def claim(data_dir: Path, home: Path) -> None:
    """Mark both as belonging together; `check` has been passed, and the database is there.
    The database is marked last: one that is marked has a data directory that says so."""
    if home == data_dir:
        return
    mine = _read(data_dir) or secrets.token_hex(16)
    for folder in (data_dir, home):
        if _read(folder) != mine:
            beside = folder / f".{_MARKER}.new"
            beside.write_text(f"{mine}\n", encoding="ascii")
            beside.replace(folder / _MARKER)


def _read(folder: Path) -> str | None:
    try:
        return (folder / _MARKER).read_text(encoding="ascii").strip() or None
    except (OSError, UnicodeDecodeError):
        return None
