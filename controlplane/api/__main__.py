"""The api process: `python -m controlplane.api`. Listens on 127.0.0.1 only; the front door
stands before it."""

from __future__ import annotations

import sys

from controlplane.api.app import create_app
from controlplane.api.server import ApiServer
from controlplane.errors import AppError
from controlplane.hints import Hints
from controlplane.machine import find_devices
from controlplane.services.site import open_site
from controlplane.settings import load_settings
from controlplane.telemetry import configure_logging


def main() -> None:
    try:
        settings = load_settings()
        configure_logging("api", settings.log_level)
        on_machine = settings.driver in {"local", "fake"}
        find = (lambda: find_devices(settings)) if on_machine else None
        site = open_site(settings, Hints(settings), find)
    except AppError as e:
        sys.exit(f"{e.message} {e.hint}".strip())
    server = ApiServer(create_app(site), settings.server.api_port)
    server.run()
    if not server.started:
        sys.exit(1)


if __name__ == "__main__":
    main()
