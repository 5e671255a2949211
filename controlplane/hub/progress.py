"""How far a download is, told from what lies on the disk.

So it is right whichever part of the client writes, and after a restart.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Event, Thread

from controlplane.hub.files import HubFile

PART = ".part"  # what a large file is called until it is whole
LOOK_EVERY = 0.5  # seconds
RATE_OVER = 30.0  # seconds that the rate is averaged over


@dataclass(frozen=True, slots=True)
class Progress:
    """Bytes on disk and bytes in all; `eta_seconds` once there is a rate."""

    done: int
    total: int
    eta_seconds: int | None = None


Report = Callable[[Progress], None]


@dataclass(frozen=True, slots=True)
class Seen:
    """What is on disk of a list of files."""

    sizes: dict[str, int]
    blobs: Path

    @property
    def total(self) -> int:
        return sum(self.sizes.values())

    def done(self) -> int:
        """Bytes on disk, parts included."""
        whole = parts = 0
        for blob, size in self.sizes.items():
            have = _size(self.blobs / blob)
            if have is None:
                parts += min(size, _size(self.blobs / f"{blob}{PART}") or 0)
            else:
                whole += size
        parts += sum(_size(p) or 0 for p in self.blobs.glob("*.incomplete"))
        return min(self.total, whole + parts)

    def missing(self) -> int:
        return self.total - self.done()


class Rate:
    """Bytes a second over the last while; a resumed download starts without one."""

    def __init__(self) -> None:
        self._looks: deque[tuple[float, int]] = deque()

    def eta(self, at: float, done: int, total: int) -> int | None:
        """Seconds to the end as it goes at the moment; None while that can't be said."""
        self._looks.append((at, done))
        while self._looks[0][0] < at - RATE_OVER:
            self._looks.popleft()
        since, had = self._looks[0]
        if at <= since or done <= had:
            return None
        return round((total - done) * (at - since) / (done - had))


@contextmanager
def watch(files: Sequence[HubFile], blobs: Path, report: Report) -> Iterator[Seen]:
    """Report now and twice a second until the block ends."""
    seen = Seen({f.blob: f.size for f in files}, blobs)
    rate, over = Rate(), Event()

    def look() -> None:
        done = seen.done()
        report(Progress(done, seen.total, rate.eta(time.monotonic(), done, seen.total)))

    def follow() -> None:
        while not over.wait(LOOK_EVERY):
            look()

    look()
    thread = Thread(target=follow, name="progress", daemon=True)
    thread.start()
    try:
        yield seen
    finally:
        over.set()
        thread.join()
        look()


def _size(path: Path) -> int | None:
    try:
        return path.stat().st_size
    except OSError:
        return None
