"""`python -m controlplane.gateway`: the front door of the one origin."""

from __future__ import annotations

import sys

import uvloop

from controlplane.errors import AppError
from controlplane.gateway.server import serve
from controlplane.settings import load_settings
from controlplane.telemetry import configure_logging


def main() -> int:
    try:
        settings = load_settings()
        configure_logging("gateway", settings.log_level)
        uvloop.run(serve(settings))
    except AppError as e:
        print(f"{e.message} {e.hint}".strip(), file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
