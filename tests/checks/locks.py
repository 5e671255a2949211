"""Lock files: every package with its hashes, none with an address, none missing."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

from packaging.requirements import Requirement

LOCKS = {"requirements.txt": ("build",), "requirements-dev.txt": ("build", "dev")}
"""Each lock, and the extras of pyproject.toml that it holds beside the dependencies."""
_ADDRESS = re.compile(r"://|--(extra-)?index-url|--find-links|--trusted-host|\s@\s")
_PACKAGE = re.compile(r"^[a-z0-9][a-z0-9.-]*==\S+", re.IGNORECASE)


def faults(root: Path) -> Iterator[str]:
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    for name, extras in LOCKS.items():
        text = (root / name).read_text(encoding="utf-8")
        yield from faults_of(name, text)
        wanted = list(project["dependencies"])
        for extra in extras:
            wanted += project["optional-dependencies"][extra]
        yield from missing(name, text, wanted)


def missing(name: str, text: str, wanted: list[str]) -> Iterator[str]:
    """What is asked for and not pinned, or pinned to a version that is not the asked one."""
    pinned = dict(re.findall(r"^([A-Za-z0-9._-]+)(?:\[[^]]*\])?==(\S+)", text, re.MULTILINE))
    pinned = {_plain(package): version for package, version in pinned.items()}
    for line in wanted:
        requirement = Requirement(line)
        version = pinned.get(_plain(requirement.name))
        if version is None:
            yield f"{name} lacks {requirement.name}; run make lock"
        elif not requirement.specifier.contains(version, prereleases=True):
            yield f"{name} pins {requirement.name} {version}, not {requirement.specifier}"


def _plain(package: str) -> str:
    return re.sub(r"[-_.]+", "-", package).lower()


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
