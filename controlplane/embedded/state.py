"""What the supervisor leaves in the run folder for other commands: a lock that says whether
it lives, and a file that says where everything is."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

from controlplane.embedded.leftovers import Life
from controlplane.embedded.places import make_private
from controlplane.errors import Conflict, Refused
from controlplane.paths import DataDir


@dataclass(frozen=True, slots=True)
class Running:
    """One `up`: where its front door is, whether it was ready, and its children's lives."""

    pid: int
    host: str
    port: int
    api_port: int
    ready: bool = False
    children: Mapping[str, Life] = field(default_factory=dict)


class RunFolder:
    """The run folder of one data directory."""

    def __init__(self, data_dir: Path) -> None:
        self.path = DataDir(data_dir).run
        self._lock = self.path / "up.lock"
        self._file = self.path / "up.json"

    def make(self) -> None:
        """Raises Refused when the data directory can't be written."""
        try:
            make_private(self.path)
        except OSError as e:
            raise Refused(
                "data_dir_not_writable",
                f"{self.path} can't be made ({e.strerror}).",
                hint="Set SLIPSTREAM_DATA_DIR to a folder that this user can write.",
            ) from e

    def log(self, name: str) -> Path:
        return self.path / f"{name}.log"

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Hold the data directory for one `up`. The lock ends with the process that took it.
        Raises Conflict, naming the process, when another one runs."""
        fd = os.open(self._lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            self._take(fd)
            os.ftruncate(fd, 0)
            os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)
            try:
                yield
            finally:
                self._file.unlink(missing_ok=True)
                os.ftruncate(fd, 0)
        finally:
            os.close(fd)

    def _take(self, fd: int) -> None:
        for again in (True, True, False):  # somebody may just be asking who holds it
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except OSError:
                if not again:
                    raise already_runs(self.holder() or 0, self.path.parent) from None
            time.sleep(0.05)

    def holder(self) -> int | None:
        """The process that holds the data directory; None when nothing runs from it, 0 when
        it hasn't said its number yet."""
        try:
            fd = os.open(self._lock, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return None
        try:
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            word = os.pread(fd, 32, 0).decode("ascii", "replace").strip()
            return int(word) if word.isdigit() else 0
        finally:
            os.close(fd)
        return None

    def write(self, running: Running) -> None:
        beside = self._file.with_suffix(".new")
        beside.write_text(json.dumps(asdict(running)), encoding="utf-8")
        beside.replace(self._file)

    def read(self) -> Running | None:
        """What the newest `up` wrote, which may be gone; None when there is nothing usable."""
        try:
            raw = json.loads(self._file.read_text(encoding="utf-8"))
            children = {str(k): Life(**v) for k, v in raw.pop("children").items()}
            return Running(**raw, children=children)
        except (OSError, ValueError, TypeError, KeyError, AttributeError):
            return None


def already_runs(pid: int, data_dir: Path) -> Conflict:
    who = f" (process {pid})" if pid else ""
    return Conflict(
        "already_running",
        f"Slipstream already runs from {data_dir}{who}.",
        hint="slipstream down stops it; slipstream open prints a link to it.",
    )
