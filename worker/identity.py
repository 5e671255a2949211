"""A worker's name: the same one again after a restart, and never that of another that lives.

The lowest number whose lock file is free is ours; the kernel frees it when the process ends,
however it ends. So whoever holds a name knows that its former bearer is gone.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import socket
from dataclasses import dataclass
from pathlib import Path

from controlplane.errors import Unavailable

MOST = 64


@dataclass(frozen=True, slots=True)
class Identity:
    name: str
    lock_fd: int


def take_identity(data_dir: Path) -> Identity:
    """Raises Unavailable when the data directory can't be written, or is full of workers."""
    folder = data_dir / "run" / "workers"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for number in range(1, MOST + 1):
            fd = os.open(folder / f"{number}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(fd)
                continue
            place = hashlib.sha256(str(data_dir).encode()).hexdigest()[:8]
            return Identity(f"{socket.gethostname()[:60]}:{place}:{number}", fd)
    except OSError as e:
        raise Unavailable(
            "data_dir_unusable",
            f"The data directory can't be written: {os.strerror(e.errno or 0)}.",
            hint=f"SLIPSTREAM_DATA_DIR is {data_dir}.",
        ) from e
    raise Unavailable("too_many_workers", f"{MOST} workers run on this data directory already.")
