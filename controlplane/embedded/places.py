"""Where the embedded services' files lie. Nothing here changes the permissions of a folder
that it did not make itself."""

from __future__ import annotations

import hashlib
import os
import re
import stat
from pathlib import Path

from controlplane.errors import Refused

# sockaddr_un holds 108 bytes with the closing zero.
SOCKET_PATH_MAX = 107
# Socket paths go into URLs and host lists, where other characters have a meaning.
_PLAIN = re.compile(r"[A-Za-z0-9_./-]+")


def key_of(data_dir: Path) -> str:
    """A short name for a data directory, the same for every process that asks."""
    return hashlib.sha256(os.fsencode(data_dir.absolute())).hexdigest()[:12]


def socket_dir(preferred: Path, data_dir: Path, file_name: str) -> Path:
    """`preferred` where a socket called `file_name` can lie there, else a short folder of
    this user's own outside the data directory. Makes nothing."""
    path = str(preferred / file_name)
    if _PLAIN.fullmatch(path) and len(os.fsencode(path)) <= SOCKET_PATH_MAX:
        return preferred
    # /tmp: short everywhere, and it outlives the login that a runtime folder belongs to.
    return Path(f"/tmp/slipstream-{os.geteuid()}-{key_of(data_dir)}-{preferred.name}")  # noqa: S108


def make_private(path: Path, owner: tuple[int, int] | None = None) -> None:
    """Make `path` a folder that only its owner can enter, its missing parents likewise.

    Raises Refused when there is one already that somebody else owns or can enter: in a
    folder for temporary files a stranger may have put it there.
    """
    if not path.parent.exists():
        make_private(path.parent)
    try:
        path.mkdir(mode=0o700)
    except FileExistsError:
        pass
    else:
        if owner is not None:
            os.chown(path, *owner)
    seen = path.lstat()
    wanted = os.geteuid() if owner is None else owner[0]
    if not stat.S_ISDIR(seen.st_mode) or seen.st_uid != wanted or seen.st_mode & 0o077:
        raise Refused(
            "unsafe_folder",
            f"{path} is not a folder that only this user can enter.",
            hint=f"Move it away, or give it to this user: chmod 700 {path}",
        )


def make_shared(path: Path) -> None:
    """Make `path` a folder that others can pass through and only we can change, its missing
    parents likewise. One that stands already stays as it is."""
    if not path.parent.exists():
        make_shared(path.parent)
    try:
        path.mkdir()
    except FileExistsError:
        return
    path.chmod(0o711)
