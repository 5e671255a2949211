"""The import contracts of pyproject.toml: `python -m tests.checks.imports`."""

import sys

from importlinter.cli import EXIT_STATUS_SUCCESS, lint_imports

if __name__ == "__main__":
    status = lint_imports()
    sys.exit(0 if status == EXIT_STATUS_SUCCESS else 1)
