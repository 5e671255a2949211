"""Which processes make up the one-machine system, and what each of them is told."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace

from controlplane.embedded import postgres, valkey
from controlplane.settings import Settings

# Secrets that only some of the processes have a use for.
_SECRETS = {
    "HF_TOKEN": {"api", "worker", "setup"},
    "SLIPSTREAM_ADMIN_KEY": {"api", "bootstrap"},
}


@dataclass(frozen=True, slots=True)
class Part:
    """A process that the supervisor keeps alive. `grace` is how long it may take to end."""

    name: str
    module: str
    grace: float
    says: str

    @property
    def argv(self) -> tuple[str, ...]:
        return (sys.executable, "-m", self.module)


def parts(settings: Settings) -> tuple[Part, ...]:
    """In the order in which they end: first what takes requests, last what others need."""
    drain = settings.traffic.drain_limit
    return (
        Part("gateway", "controlplane.gateway", drain + 5, "open requests may finish"),
        Part("worker", "worker", settings.reconcile.deadline + 10, "work in progress is finished"),
        Part("api", "controlplane.api", 15, ""),
    )


def with_stores(settings: Settings) -> Settings:
    """The settings with the addresses of the embedded stores where none were given."""
    stores = settings.stores
    return replace(
        settings,
        stores=replace(
            stores,
            database_url=stores.database_url
            or postgres.url_of(settings.data_dir, stores.system_dir),
            redis_url=stores.redis_url or valkey.place_of(settings.data_dir).url,
        ),
    )


def environment(settings: Settings, name: str, base: Mapping[str, str]) -> dict[str, str]:
    """What the process called `name` is told: our own environment with the addresses of this
    run, without the secrets that it has no use for."""
    env = {k: v for k, v in base.items() if name in _SECRETS.get(k, {name})}
    return {
        **env,
        "SLIPSTREAM_DATA_DIR": str(settings.data_dir),
        "SLIPSTREAM_DATABASE_URL": settings.stores.database_url or "",
        "SLIPSTREAM_REDIS_URL": settings.stores.redis_url or "",
        "SLIPSTREAM_HOST": settings.server.host,
        "SLIPSTREAM_PORT": str(settings.server.port),
        "SLIPSTREAM_API_PORT": str(settings.server.api_port),
        "SLIPSTREAM_WORKER_METRICS_PORT": str(settings.server.worker_metrics_port),
        # Each thread would otherwise reserve a memory pool of its own.
        "MALLOC_ARENA_MAX": env.get("MALLOC_ARENA_MAX", "2"),
    }
