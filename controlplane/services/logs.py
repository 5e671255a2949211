"""A deployment's logs, read from the files that the local driver and the downloader write:
the last lines, and from there on what comes, through rotations and new replicas."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from controlplane.auth.principals import Action, Principal
from controlplane.domain.deployment import DeploymentId
from controlplane.domain.reasons import Reason
from controlplane.paths import DataDir
from controlplane.services.deployments import must_find
from controlplane.services.site import Site
from controlplane.services.views import View, to_view

MOST_LINES = 5000
_BLOCK = 1 << 20  # read at most at once, and the most that a tail looks at in one file
_LONGEST_LINE = 8192
_ENGINE_LOG = "engine.log"
_ESCAPES = re.compile(rb"\x1b\[[0-9;?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)")
_CONTROLS = {c: None for c in range(32) if c != 9} | dict.fromkeys(range(0x7F, 0xA0))


@dataclass(frozen=True, slots=True)
class LogLine:
    """One line without its end. `source` is a replica (`<slot>-<hash>`) or `download`.
    Colours and other control characters are taken out."""

    source: str
    text: str


def sources(site: Site, view: View) -> list[tuple[str, Path]]:
    """The files that tell of a deployment now, the one that is written to last at the end.
    While weights are fetched, and before any engine ran, those of the downloads."""
    data = DataDir(site.settings.data_dir)
    folder = data.deployment(DeploymentId(view.id))
    prefix = f"{view.id.lower().replace('_', '-')}-"
    engines = [
        (file.parent.name.removeprefix(prefix), file) for file in folder.glob(f"*/{_ENGINE_LOG}")
    ]
    fetching = view.status.reason is Reason.DOWNLOADING_WEIGHTS
    if fetching or not engines:
        engines += list(_downloads(data, view))
    return sorted(engines, key=lambda found: _written_at(found[1]))


def tail(site: Site, by: Principal, ref: str, lines: int) -> list[LogLine]:
    """The last `lines` lines, oldest first; empty when nothing was written yet."""
    view = _view(site, by, ref)
    found: list[LogLine] = []
    for source, file in reversed(sources(site, view)):
        if len(found) >= lines:
            break
        found = [*_last_lines(source, file, lines - len(found)), *found]
    return found


class Follower:
    """Reads what is added to a deployment's logs. `poll` does not wait: call it again."""

    def __init__(self, site: Site, by: Principal, ref: str, lines: int) -> None:
        """Raises NotFound. `lines` older ones come first."""
        self._site, self._by = site, by
        self._view = _view(site, by, ref)
        self._open: dict[Path, _OpenLog] = {}
        older: list[LogLine] = []
        for source, file in sources(site, self._view):
            self._follow(source, file)
            if file in self._open:
                older += self._open[file].tail(lines)
        self._first = older[-lines:]

    def poll(self) -> list[LogLine]:
        found, self._first = self._first, []
        for source, file in sources(self._site, self._view):
            if file not in self._open:
                self._follow(source, file)
        for log in self._open.values():
            found.extend(log.read())
        return found

    def ended(self) -> bool:
        """True once the deployment is gone. Looks it up anew, so new downloads show as well."""
        self._view = _view(self._site, self._by, self._view.id)
        return self._view.status.phase == "deleted"

    def close(self) -> None:
        for log in self._open.values():
            log.close()

    def _follow(self, source: str, file: Path) -> None:
        try:
            self._open[file] = _OpenLog(source, file)
        except OSError:
            return  # it went between the listing and the opening; the next poll sees


class _OpenLog:
    """One file by its path, whichever file that is after a rotation."""

    def __init__(self, source: str, path: Path) -> None:
        self._source, self._path = source, path
        self._file = path.open("rb", buffering=0)
        self._rest = b""

    def tail(self, lines: int) -> list[LogLine]:
        """The last lines that are there; `read` goes on right behind them."""
        size = self._file.seek(0, os.SEEK_END)
        self._file.seek(max(0, size - _BLOCK))
        found = list(self._lines(self._file.read(_BLOCK)))
        return found[1:][-lines:] if size > _BLOCK else found[-lines:]

    def read(self) -> Iterator[LogLine]:
        """New lines: the rest of the old file first when another has its name by now."""
        yield from self._lines(self._file.read(_BLOCK))
        try:
            now = self._path.stat()
        except OSError:
            return
        mine = os.fstat(self._file.fileno())
        if (now.st_dev, now.st_ino) != (mine.st_dev, mine.st_ino):
            yield from self._lines(self._file.read(_BLOCK))
            self._file.close()
            self._file = self._path.open("rb", buffering=0)
            yield from self._lines(self._file.read(_BLOCK))
        elif now.st_size < self._file.tell():  # copied away and emptied
            yield from self._lines(self._rest_of_copy())
            self._file.seek(0)
            yield from self._lines(self._file.read(_BLOCK))

    def _rest_of_copy(self) -> bytes:
        """What the older file holds beyond what was read before it was copied there."""
        try:
            with _older(self._path).open("rb") as copy:
                copy.seek(self._file.tell())
                return copy.read(_BLOCK)
        except OSError:
            return b""

    def close(self) -> None:
        self._file.close()

    def _lines(self, block: bytes) -> Iterator[LogLine]:
        *whole, self._rest = (self._rest + block).split(b"\n")
        if len(self._rest) > _LONGEST_LINE:
            whole, self._rest = [*whole, self._rest], b""
        for line in whole:
            yield LogLine(self._source, _plain(line))


def _view(site: Site, by: Principal, ref: str) -> View:
    by.require(Action.READ)
    with site.begin() as session:
        return to_view(must_find(session, by, ref))


def _downloads(data: DataDir, view: View) -> Iterator[tuple[str, Path]]:
    """Of the target, at the revision that was asked for and at the commit that it became, and
    of the draft."""
    spec = view.spec
    wanted = dict.fromkeys(
        [
            (spec.get("model"), spec.get("revision")),
            (spec.get("model"), view.status.resolved.revision),
            (spec.get("draft_model"), None),
        ]
    )
    for model, revision in wanted:
        if isinstance(model, str) and (revision is None or isinstance(revision, str)):
            for file in data.download(model, revision).glob("*.log"):
                yield "download", file


def _last_lines(source: str, file: Path, lines: int) -> list[LogLine]:
    """From the end of `file`, and of the older one that a rotation left, where need be."""
    found: list[bytes] = []
    for part in (file, _older(file)):
        if len(found) < lines:
            found = _read_end(part) + found
    return [LogLine(source, _plain(line)) for line in found[-lines:]]


def _older(file: Path) -> Path:
    """Where a rotation leaves what was in `file`."""
    return file.with_name(f"{file.name}.1")


def _read_end(file: Path) -> list[bytes]:
    try:
        with file.open("rb") as f:
            size = f.seek(0, os.SEEK_END)
            f.seek(max(0, size - _BLOCK))
            lines = f.read(_BLOCK).split(b"\n")
    except OSError:
        return []
    whole = lines[1:] if size > _BLOCK else lines
    return whole[:-1] if whole and not whole[-1] else whole


def _plain(line: bytes) -> str:
    """As a terminal would show it in the end: without colours, and of a progress bar that
    overwrites itself only the last state."""
    text = _ESCAPES.sub(b"", line[:_LONGEST_LINE]).decode("utf-8", "replace")
    return text.rstrip("\r").rsplit("\r", 1)[-1].translate(_CONTROLS)


def _written_at(file: Path) -> float:
    try:
        return file.stat().st_mtime
    except OSError:
        return 0.0
