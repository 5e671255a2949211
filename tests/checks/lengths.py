"""Files and functions stay short enough to be read in one go."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

FILE_LINES = 400
FUNCTION_LINES = 50
ROOMS = ("controlplane", "worker", "migrations", "tools")
# What follows a table or a list of steps has no better place to be cut.
_WRITTEN_BY_TOOLS = ("versions",)


def faults(root: Path) -> Iterator[str]:
    for room in ROOMS:
        for path in sorted((root / room).rglob("*.py")):
            if not set(path.parts) & set(_WRITTEN_BY_TOOLS):
                yield from _faults_of(path, root)


def _faults_of(path: Path, root: Path) -> Iterator[str]:
    text = path.read_text(encoding="utf-8")
    name = path.relative_to(root)
    if (lines := len(text.splitlines())) >= FILE_LINES:
        yield f"{name} has {lines} lines; fewer than {FILE_LINES} are allowed"
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            if length > FUNCTION_LINES:
                yield (
                    f"{name}:{node.lineno} {node.name}() has {length} lines;"
                    f" at most {FUNCTION_LINES} are allowed"
                )
