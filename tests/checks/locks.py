"""Lock files: every package with its hashes, none with an address."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

LOCKS = ("requirements.txt", "requirements-dev.txt")
_ADDRESS = re.compile(r"://|--(extra-)?index-url|--find-links|--trusted-host|\s@\s")
_PACKAGE = re.compile(r"^[a-z0-9][a-z0-9.-]*==\S+", re.IGNORECASE)


def faults(root: Path) -> Iterator[str]:
    for name in LOCKS:
        yield from faults_of(name, (root / name).read_text(encoding="utf-8"))


def faults_of(name: str, text: str) -> Iterator[str]:
    for block in re.split(r"\n(?=\S)", text.strip()):
        first = block.splitlines()[0]
        if _ADDRESS.search(block):
            yield f"{name} holds an address: {first[:80]}"
        elif first.startswith("#"):
            continue
        elif not _PACKAGE.match(first):
            yield f"{name} holds a line that pins nothing: {first[:80]}"
        elif "--hash=sha256:" not in block:
            yield f"{name} has no hash for {first.split()[0]}"
