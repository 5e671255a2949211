"""Names of the database's notification channels, apart from any library that sends on them."""

from __future__ import annotations

CHANGES = "slipstream_changes"
ROUTES = "slipstream_routes"
