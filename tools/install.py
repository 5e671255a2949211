"""Makes `.venv` from the locked requirements: `python3 tools/install.py up|dev`.

Standard library only, since it runs before anything is installed. It installs only what
changed, and tells a failure in one sentence. `up` first looks at the machine, and becomes
`slipstream up` at the end.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
VENV = ROOT / ".venv"
STAMP = VENV / "slipstream-installed.json"
LOCKS = {"up": ROOT / "requirements.txt", "dev": ROOT / "requirements-dev.txt"}

REFUSED, UNREACHABLE = 4, 5

# What pip says, and what it means: (signs, sentence, hint, exit status), the first that fits.
FAULTS: tuple[tuple[tuple[str, ...], str, str, int], ...] = (
    (
        ("No space left on device", "Errno 28"),
        "The disk is full.",
        "Free some space, then run the same command again.",
        REFUSED,
    ),
    (
        ("DO NOT MATCH THE HASHES",),
        "A downloaded package is not the one that was locked (its hash differs).",
        "Run it again; if it stays, ask whoever runs your package index.",
        REFUSED,
    ),
    (
        (
            "Max retries exceeded",
            "NewConnectionError",
            "NameResolutionError",
            "Temporary failure in name resolution",
            "Connection refused",
            "ReadTimeoutError",
            "ConnectTimeoutError",
            "connection broken by",
            "Could not fetch URL",
            "ProxyError",
            "SSLError",
        ),
        "The package index can't be reached.",
        "Check the network or proxy, or pip's settings (pip config list), then run it again.",
        UNREACHABLE,
    ),
    (
        ("(from versions: none)",),
        "The package index can't be reached, or lacks a package.",
        "Check the network or proxy, or pip's settings (pip config list), then run it again.",
        UNREACHABLE,
    ),
    (
        ("No matching distribution found", "Could not find a version"),
        "The package index lacks a package, or has none for this system and Python.",
        "The last lines above name it. An index of your own is set with: pip config",
        REFUSED,
    ),
    (
        ("Permission denied",),
        "A file could not be written.",
        f"This user needs to own {VENV}; a leftover of another user can be deleted.",
        REFUSED,
    ),
)


def main(what: str) -> int:
    if what == "up" and not _installed(what):
        # The machine is looked at first: nothing is downloaded for a system that can't start.
        argv = [sys.executable, "-m", "controlplane.embedded.preflight", str(VENV)]
        if (status := subprocess.run(argv, cwd=ROOT, check=False).returncode) != 0:
            return status
        if (status := _install(what)) != 0:
            return status
        _become_up("--checked")
    elif what == "up":
        _become_up()
    elif not _installed(what):
        return _install(what)
    return 0


def _become_up(*more: str) -> None:
    os.chdir(ROOT)
    python = str(VENV / "bin/python")  # whole, as it is how Python finds its environment
    os.execv(python, [python, "-m", "controlplane.embedded", "up", *more])  # noqa: S606


def _wanted(what: str) -> str:
    """A digest of all that an installation follows from."""
    parts = [LOCKS[what].read_bytes(), (ROOT / "pyproject.toml").read_bytes()]
    parts += [str(ROOT).encode(), sys.version.encode()]
    return hashlib.sha256(b"\0".join(parts)).hexdigest()


def _installed(what: str) -> bool:
    return _stamps().get(what) == _wanted(what) and (VENV / "bin/python").exists()


def _stamps() -> dict[str, str]:
    try:
        found = json.loads(STAMP.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _install(what: str) -> int:
    began = time.monotonic()
    for step in (_make_venv, _packages, _project):
        if (status := step(what)) != 0:
            return status
    # What tests need holds all that `up` needs.
    done = {"root": str(ROOT), "up": _wanted("up"), what: _wanted(what)}
    STAMP.write_text(json.dumps(done), encoding="utf-8")
    print(f"Installed after {time.monotonic() - began:.0f} s.\n", flush=True)
    return 0


def _make_venv(what: str) -> int:
    """A new environment where there is none, or where the one here was made at another
    place or with another Python: its programs would point there."""
    if _stamps().get("root", str(ROOT)) != str(ROOT):
        shutil.rmtree(VENV, ignore_errors=True)
    if _runs(VENV / "bin/python"):
        return 0
    print(f"Making {VENV.name} with Python {sys.version.split()[0]}", flush=True)
    argv = [sys.executable, "-m", "venv", "--clear", str(VENV)]
    result = subprocess.run(argv, capture_output=True, text=True, check=False)
    if result.returncode == 0:
        return 0
    said = (result.stdout + result.stderr).strip().splitlines()
    if any("ensurepip" in line for line in said):
        version = f"{sys.version_info.major}.{sys.version_info.minor}"
        return _fail(
            f"Python {version} here can't make environments: its venv package is missing.",
            f"sudo apt install python{version}-venv",
            REFUSED,
        )
    return _explained(said, "The environment could not be made.")


def _runs(python: Path) -> bool:
    """True when it starts and is of the version that runs us."""
    try:
        code = f"import sys, pip; sys.exit(sys.version_info[:2] != {sys.version_info[:2]})"
        return (
            subprocess.run([python, "-c", code], capture_output=True, check=False).returncode == 0
        )
    except OSError:
        return False


def _packages(what: str) -> int:
    lock = LOCKS[what]
    count = sum("==" in line for line in lock.read_text(encoding="utf-8").splitlines())
    print(f"Installing from {lock.name}, at most {count} packages", flush=True)
    argv = ["install", "--require-hashes", "--no-deps", "--no-compile", "-r", str(lock)]
    status, said = _pip(argv)
    if status != 0:
        return _explained(said, "The packages could not be installed.")
    print("Compiling", flush=True)
    argv = [str(VENV / "bin/python"), "-m", "compileall", "-q", "-j", "0", str(VENV / "lib")]
    subprocess.run(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
    return 0


def _project(what: str) -> int:
    """The project itself, from this folder, by the build tools that were just installed."""
    argv = ["install", "--no-deps", "--no-build-isolation", "--no-index", "-e", str(ROOT)]
    status, said = _pip(argv)
    return 0 if status == 0 else _explained(said, "The project could not be installed.")


def _pip(argv: list[str]) -> tuple[int, list[str]]:
    """Run pip with its progress on one line; returns its status and what it said."""
    env = {"PIP_RETRIES": "2", **os.environ, "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    with subprocess.Popen(
        [str(VENV / "bin/python"), "-m", "pip", *argv, "--progress-bar", "off", "--no-input"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        env=env,
        cwd=ROOT,
    ) as pip:
        said = list(_shown(pip))
    return pip.returncode, said


def _shown(pip: subprocess.Popen[str]) -> Iterator[str]:
    """Pass pip's lines on, showing what it is at: one line on a terminal, else every 20th."""
    assert pip.stdout is not None
    live, seen = sys.stdout.isatty(), 0
    for line in pip.stdout:
        word, _, rest = line.strip().partition(" ")
        if word in {"Collecting", "Downloading", "Installing", "Processing"}:
            seen += word == "Collecting"
            text = f"  {seen:>3} {word.lower()} {rest}"[:78]
            if live:
                print(f"\r{text:<78}", end="", flush=True)
            elif word == "Installing" or (word == "Collecting" and seen % 20 == 1):
                print(text, flush=True)
        yield line.rstrip()
    if live:
        print("\r" + " " * 78 + "\r", end="", flush=True)


def _explained(said: list[str], otherwise: str) -> int:
    text = "\n".join(said)
    for signs, sentence, hint, status in FAULTS:
        if any(sign in text for sign in signs):
            if sentence.startswith("The package index lacks"):
                print("\n".join(f"  {line}" for line in said[-3:]), file=sys.stderr)
            return _fail(sentence, hint, status)
    print("\n".join(f"  {line}" for line in said[-8:]), file=sys.stderr)
    return _fail(otherwise, "The lines above are pip's own.", REFUSED)


def _fail(sentence: str, hint: str, status: int) -> int:
    print(f"{sentence}\n  {hint}", file=sys.stderr, flush=True)
    return status


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1]))
    except KeyboardInterrupt:
        print("\nStopped. Running it again goes on from here.", file=sys.stderr)
        sys.exit(130)
