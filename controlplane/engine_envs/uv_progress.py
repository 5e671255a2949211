"""How far an install is, read from the lines that uv prints without a terminal."""

from __future__ import annotations

import re

from controlplane.long_jobs import Progress

_ANNOUNCED = re.compile(r"^Downloading (\S+) \(([\d.]+)([KMG])iB\)")
_DONE = re.compile(r"^ ?Downloaded (\S+)")
_UNIT = {"K": 2**10, "M": 2**20, "G": 2**30}
# Shares of the whole time, as measured on two cores with an empty cache.
_RESOLVED, _FETCHED, _INSTALLED, _COMPILED = 0.05, 0.6, 0.7, 0.9


class UvProgress:
    """Takes uv's lines one by one; `take` gives progress when a line tells some."""

    def __init__(self) -> None:
        self._sizes: dict[str, float] = {}
        self._done = 0.0

    def take(self, line: str) -> Progress | None:
        announced = _ANNOUNCED.match(line)
        if announced:
            name, number, unit = announced.groups()
            self._sizes[name] = float(number) * _UNIT[unit]
            return self._downloading()
        done = _DONE.match(line)
        if done:
            self._done += self._sizes.get(done.group(1), 0.0)
            return self._downloading()
        if line.startswith("Resolved "):
            return Progress(_RESOLVED, "download", "Downloading packages")
        if line.startswith("Prepared "):
            return Progress(_FETCHED, "unpack", "Unpacking packages")
        if line.startswith("Installed "):
            return Progress(_INSTALLED, "compile", "Compiling Python files, for faster starts")
        if line.startswith("Bytecode compiled "):
            return Progress(_COMPILED, "check", "Trying the engine")
        return None

    def _downloading(self) -> Progress:
        total = sum(self._sizes.values())
        share = self._done / total if total else 0.0
        mb = 1_000_000
        return Progress(
            _RESOLVED + (_FETCHED - _RESOLVED) * min(1.0, share),
            "download",
            f"Downloading packages: {self._done / mb:.0f} of {total / mb:.0f} MB",
        )
