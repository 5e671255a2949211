"""Runs uv, the installer that comes with us, and tells its failures apart.

uv reads no pip configuration. What decides where packages come from (an index, folders of
wheels) is read from pip's and handed on, so that a machine that is set up for pip works.
"""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from controlplane.errors import Kind, Refused, Unavailable

OnLine = Callable[[str], None]
_LIMIT_SECONDS = 3600.0  # an end for an installer that hangs; a slow line needs half of it
_PIP_SECONDS = 20.0
_KEPT_LINES = 40
# Settings of the caller's own environment that would lead uv away from the one we name.
_NOT_HANDED_ON = ("VIRTUAL_ENV", "PYTHONPATH", "PYTHONHOME", "UV_SYSTEM_PYTHON", "UV_PROJECT")


class InstallFailed(Unavailable):
    """uv ended with an error. `reason` tells which kind of error it was."""

    def __init__(self, reason: str, message: str, hint: str, kind: Kind) -> None:
        super().__init__(reason, message, hint=hint, kind=kind)


@dataclass(frozen=True, slots=True)
class PackageSources:
    """Where pip was told to look. An index address may hold a password: never print it."""

    find_links: tuple[str, ...] = ()
    index_url: str | None = None


def program() -> str:
    """The path of uv: the one of our own environment, else the one on PATH."""
    try:
        from uv import find_uv_bin

        return find_uv_bin()
    except (ImportError, FileNotFoundError):
        found = shutil.which("uv")
    if found is None:
        raise Refused(
            "uv_missing",
            "uv, which installs engines, is not there.",
            hint="Install it beside slipstream: pip install uv.",
        )
    return found


def package_sources(environ: Mapping[str, str] | None = None) -> PackageSources:
    """What pip's environment and configuration say; nothing where there is no pip."""
    environ = os.environ if environ is None else environ
    said = _pip_config()
    links = environ.get("PIP_FIND_LINKS") or said.get("find-links", "")
    index = environ.get("PIP_INDEX_URL") or said.get("index-url") or None
    return PackageSources(tuple(links.split()), index)


def _pip_config() -> dict[str, str]:
    pip = shutil.which("pip") or shutil.which("pip3")
    if pip is None:
        return {}
    try:
        done = subprocess.run(
            [pip, "config", "list"],
            capture_output=True,
            text=True,
            timeout=_PIP_SECONDS,
            check=False,
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.TimeoutExpired):
        return {}
    return parse_pip_config(done.stdout)


def parse_pip_config(text: str) -> dict[str, str]:
    """`global.*` and `install.*` of `pip config list`, without the section; install wins."""
    said: dict[str, dict[str, str]] = {"global": {}, "install": {}}
    for line in text.splitlines():
        name, equals, value = line.partition("=")
        section, dot, key = name.partition(".")
        if not equals or not dot or section not in said:
            continue
        try:
            said[section][key] = str(ast.literal_eval(value))
        except (ValueError, SyntaxError):
            continue
    return said["global"] | said["install"]


def run(
    args: Sequence[str], *, sources: PackageSources | None = None, on_line: OnLine | None = None
) -> None:
    """Run `uv` with `args` until it ends, handing on each line that it prints.

    Raises InstallFailed with one sentence and a hint when it fails. The child ends with this
    call, however the call ends.
    """
    last: deque[str] = deque(maxlen=_KEPT_LINES)
    child = subprocess.Popen(
        [program(), *args],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        env=_environment(sources or PackageSources()),
    )
    overdue = threading.Timer(_LIMIT_SECONDS, child.kill)
    overdue.daemon = True
    overdue.start()
    try:
        assert child.stdout is not None
        with child.stdout as lines:
            for line in lines:
                last.append(line.rstrip())
                if on_line:
                    on_line(line.rstrip())
        child.wait()
    finally:
        overdue.cancel()
        if child.poll() is None:
            child.kill()
            child.wait()
    if child.returncode != 0:
        raise explain(list(last))


def _environment(sources: PackageSources) -> dict[str, str]:
    env = {k: v for k, v in os.environ.items() if k not in _NOT_HANDED_ON}
    env |= {"UV_NO_PROGRESS": "1", "NO_COLOR": "1", "UV_PYTHON_DOWNLOADS": "never"}
    # By the environment and not as an argument: arguments are there for all to read.
    if sources.index_url and "UV_DEFAULT_INDEX" not in env and "UV_INDEX_URL" not in env:
        env["UV_DEFAULT_INDEX"] = sources.index_url
    return env


def find_links_args(sources: PackageSources) -> list[str]:
    return [arg for link in sources.find_links for arg in ("--find-links", link)]


# In this order: a full disk also shows up as a failed copy of a fetched file, and "no wheels"
# is told inside of "no solution".
_FAILURES: tuple[tuple[tuple[str, ...], str, str, str, Kind], ...] = (
    (
        ("no space left on device", "os error 28", "disk quota exceeded"),
        "disk_full",
        "The disk is full.",
        "Free some space (an engine needs up to 12 GB while it is installed) and try again.",
        Kind.REFUSED,
    ),
    (
        ("error sending request", "failed to fetch", "dns error", "client error (connect)",
         "connection refused", "operation timed out", "network connectivity is disabled"),
        "index_unreachable",
        "The package index can't be reached.",
        "Check this machine's network and proxy settings. What was downloaded is kept.",
        Kind.UNAVAILABLE,
    ),
    (
        ("no wheels with a matching", "no wheels are available", "does not satisfy python",
         "no wheels are usable", "doesn't have a source distribution or wheel for"),
        "no_wheel",
        "There is no build of this engine for this machine's Python, processor or system.",
        "Engines are built for Linux on x86-64 and ARM 64 with Python 3.11 to 3.13.",
        Kind.REFUSED,
    ),
    (
        ("no solution found", "was not found in the package registry"),
        "not_found_in_index",
        "The package index does not have everything that this engine needs.",
        "If a mirror of the index is used, it may lack packages; try the public one.",
        Kind.REFUSED,
    ),
    (
        ("hash mismatch",),
        "hash_mismatch",
        "A downloaded package is not the one that was expected.",
        "Try again; if it stays so, the index or a proxy on the way changes packages.",
        Kind.REFUSED,
    ),
    (
        ("permission denied", "read-only file system"),
        "not_writable",
        "The engine's folder or the package cache can't be written.",
        "Check who owns the data directory and the package cache (uv cache dir).",
        Kind.REFUSED,
    ),
)  # fmt: skip


def explain(lines: Sequence[str]) -> InstallFailed:
    """The failure that uv's last lines tell, as one sentence and a hint."""
    text = "\n".join(lines).lower()
    for words, code, message, hint, kind in _FAILURES:
        if any(w in text for w in words):
            return InstallFailed(code, message, hint, kind)
    said = next((x for x in lines if x.startswith("error:")), lines[-1] if lines else "no output")
    return InstallFailed(
        "install_failed",
        "The installer failed.",
        f"It said: {said.removeprefix('error:').strip()[:300]}",
        Kind.UNAVAILABLE,
    )


def python_of(environment: Path) -> Path:
    return environment / "bin" / "python"
