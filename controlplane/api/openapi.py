"""`python -m controlplane.api.openapi` writes openapi.json beside this file; with `--check` it
says whether the file is what the code describes, and changes nothing."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from controlplane.api.app import create_app

FILE = Path(__file__).parent / "openapi.json"


def rendered() -> str:
    """The document, byte for byte as it is stored."""
    return json.dumps(create_app(None).openapi(), indent=1, ensure_ascii=False) + "\n"


def main(arguments: list[str]) -> int:
    text = rendered()
    if "--check" not in arguments:
        FILE.write_text(text, encoding="utf-8")
        return 0
    if FILE.exists() and FILE.read_text(encoding="utf-8") == text:
        return 0
    sys.stderr.write(f"{FILE.name} is not what the code says. Run: python -m {__spec__.name}\n")
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
