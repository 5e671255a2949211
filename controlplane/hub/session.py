"""The hub client's own session, with our limits on it: every request has a timeout, and a
rate limit is told at once instead of being slept off inside the client."""

from __future__ import annotations

from datetime import UTC, datetime

import httpx2
from huggingface_hub import constants, set_client_factory
from huggingface_hub.errors import OfflineModeIsEnabled

from controlplane.hub.translation import rate_limit

TIMEOUT = 15.0  # seconds to connect, and between two reads; not of a whole file


def use_our_session() -> None:
    """Make the hub client of this process use our session. To be called once, at start."""
    set_client_factory(_session)


def _session() -> httpx2.Client:
    return httpx2.Client(
        follow_redirects=True,
        timeout=TIMEOUT,
        event_hooks={"request": [_before], "response": [_after]},
    )


def _before(request: httpx2.Request) -> None:
    if constants.is_offline_mode():
        raise OfflineModeIsEnabled("offline mode is set")
    limits = request.extensions.get("timeout") or {}
    request.extensions["timeout"] = {
        step: limits.get(step) or TIMEOUT for step in ("connect", "read", "write", "pool")
    }


def _after(response: httpx2.Response) -> None:
    if response.status_code == httpx2.codes.TOO_MANY_REQUESTS:
        raise rate_limit(response.headers, datetime.now(UTC))
