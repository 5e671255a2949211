"""The api process: `python -m controlplane.api`. Listens on 127.0.0.1 only; the front door
stands before it."""

from __future__ import annotations

import asyncio
import sys
from types import FrameType

import uvicorn

from controlplane.api.app import create_app
from controlplane.errors import AppError
from controlplane.hints import Hints
from controlplane.machine import find_devices
from controlplane.services.site import open_site
from controlplane.settings import load_settings
from controlplane.telemetry import configure_logging

HOST = "127.0.0.1"
_KEEP_ALIVE = 75  # above the front door's own, so that it never writes into a closing one
_GRACE = 5  # seconds for calls in flight once the process is told to end


class _Server(uvicorn.Server):
    """Ends streams at once when it is told to end: they would never end by themselves."""

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        super().handle_exit(sig, frame)
        self._loop.call_soon_threadsafe(self.config.app.state.changes.close)  # type: ignore[union-attr]

    async def serve(self, sockets: list[object] | None = None) -> None:  # type: ignore[override]
        self._loop = asyncio.get_running_loop()
        await super().serve(sockets)  # type: ignore[arg-type]


def main() -> None:
    try:
        settings = load_settings()
        configure_logging("api", settings.log_level)
        on_machine = settings.driver in {"local", "fake"}
        site = open_site(
            settings,
            Hints(settings),
            (lambda: find_devices(settings)) if on_machine else None,
        )
    except AppError as e:
        sys.exit(f"{e.message} {e.hint}".strip())
    config = uvicorn.Config(
        create_app(site),
        host=HOST,
        port=settings.server.api_port,
        access_log=False,  # paths hold sign-in tokens
        log_config=None,
        server_header=False,
        date_header=True,
        timeout_keep_alive=_KEEP_ALIVE,
        timeout_graceful_shutdown=_GRACE,
    )
    _Server(config).run()


if __name__ == "__main__":
    main()
