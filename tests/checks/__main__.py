"""`make check`: every habit of this code base that a program can look at, with a reason for
each that is broken. Exit status 1 when one is. `--fast`: only those that take no time."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from tests.checks import lengths, locks, schema

ROOT = Path(__file__).resolve().parents[2]
_Check = Callable[[Path], Iterable[str]]


def _program(*argv: str) -> _Check:
    """A check that is a program: what it says is the fault."""

    def look(root: Path) -> Sequence[str]:
        result = subprocess.run(
            [sys.executable, "-m", *argv], cwd=root, capture_output=True, text=True, check=False
        )
        return [] if result.returncode == 0 else [(result.stdout + result.stderr).strip()]

    return look


CHECKS: tuple[tuple[str, _Check], ...] = (
    ("style", _program("ruff", "check", ".")),
    ("form", _program("ruff", "format", "--check", ".")),
    ("types", _program("mypy")),
    ("import contracts", _program("tests.checks.imports")),
    ("migrations", schema.faults),
    ("OpenAPI", _program("controlplane.api.openapi", "--check")),
    ("lengths", lengths.faults),
    ("lock files", locks.faults),
)


FAST = {"import contracts", "lengths", "lock files"}


def main(arguments: Sequence[str]) -> int:
    broken = 0
    for name, look in CHECKS:
        if "--fast" in arguments and name not in FAST:
            continue
        began = time.monotonic()
        found = list(look(ROOT))
        broken += bool(found)
        state = "BROKEN" if found else "ok"
        print(f"{name:<18}{state:<8}{time.monotonic() - began:5.1f} s", flush=True)
        for fault in found:
            print("  " + fault.replace("\n", "\n  "))
    print("Everything holds." if not broken else f"{broken} of {len(CHECKS)} checks are broken.")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
