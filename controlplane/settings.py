"""Settings: grouped, frozen, and the only reader of the environment.

Each value states its unit and why its default is what it is. Times are in seconds.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar
from urllib.parse import urlsplit

from controlplane.domain.tiers import BUILT_IN, Tier, merge, parse_tiers
from controlplane.errors import Invalid

_Number = TypeVar("_Number", int, float)
DRIVERS = ("local", "kubernetes", "fake")
LOG_LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")
_HIGHEST_PORT = 65_535
_LONGEST = 31_536_000  # seconds, a year: what waits far longer overflows in the waits below us


@dataclass(frozen=True, slots=True)
class Server:
    """Where the one-machine system listens. `api_port` is the api process's own port behind
    the front door; 0 lets the supervisor take a free one."""

    host: str = "127.0.0.1"
    port: int = 8400
    api_port: int = 0
    worker_metrics_port: int = 0  # where the worker tells its metrics, on 127.0.0.1; 0: nowhere
    max_body_bytes: int = 1_048_576  # of a REST request; a spec is a few hundred bytes


@dataclass(frozen=True, slots=True)
class Stores:
    """None: the embedded one, under the data directory. `redis_url` is as redis-py spells
    it, a Unix socket as `unix:///path?db=N`; Celery gets `broker_url`. `system_dir` is
    where the embedded database lies when root runs it: PostgreSQL refuses root, so its
    data belongs to a user of its own, who can't reach what lies under root's home."""

    database_url: str | None = None
    redis_url: str | None = None
    pool_size: int = 5  # connections a process keeps; PostgreSQL's cost is about 5 MB each
    system_dir: Path = Path("/var/lib/slipstream")

    @property
    def broker_url(self) -> str | None:
        """`redis_url` as Celery and kombu spell it: `redis+socket:///path?virtual_host=N`
        where redis-py says `unix:///path?db=N`; any other address is the same for both."""
        url = self.redis_url
        if url is None or not url.startswith("unix://"):
            return url
        path, _, query = url.removeprefix("unix://").partition("?")
        query = query.replace("db=", "virtual_host=", 1) if query.startswith("db=") else query
        return f"redis+socket://{path}" + (f"?{query}" if query else "")


@dataclass(frozen=True, slots=True)
class Reconcile:
    """deadline < lease < visibility_timeout, checked at boot: a reconcile that outlives its
    lease, or a message that comes back while its task still runs, would work twice."""

    sweep_every: float = 10.0
    lease: float = 10.0
    deadline: float = 8.0
    visibility_timeout: float = 60.0
    concurrency: int = 4  # threads; a reconcile is short and mostly waits for I/O


@dataclass(frozen=True, slots=True)
class Engines:
    """`command` replaces the installed engine (`SLIPSTREAM_ENGINE_COMMAND`); `start_timeout`
    ends a start that never answers; after `attempts` failed starts in a row the slot is
    freed; `retry_first` doubles up to `retry_cap`; being ready for `steady_after` forgets the
    failures before. `cpu_slots` 0 lets the machine decide."""

    command: str | None = None
    start_timeout: float = 1800.0
    attempts: int = 5
    retry_first: float = 2.0
    retry_cap: float = 300.0
    steady_after: float = 60.0
    stop_grace: float = 15.0  # SIGTERM to SIGKILL, once nothing is in flight
    cpu_slots: int = 0
    log_bytes: int = 10_000_000  # a log file is rotated there, keeping one older file


@dataclass(frozen=True, slots=True)
class Traffic:
    """Heartbeats, drains and wakes. A gateway that was not seen for `gateway_silent` is
    unknown, not gone. `settle` after the database came back nothing is put to sleep."""

    heartbeat_every: float = 1.0
    gateway_silent: float = 5.0
    drain_limit: float = 300.0
    settle: float = 30.0
    minimum_uptime: float = 60.0  # before a deployment may be put to sleep for another's wake
    max_body_bytes: int = 33_554_432  # of a /v1 request: images come as base64


@dataclass(frozen=True, slots=True)
class Gateway:
    """How the gateway waits for engines. No limit is on a whole answer: the first byte may
    take as long as a long prompt on a slow machine does, and a stream may last for hours as
    long as it moves. `held_bytes` bounds the bodies of held requests in one process."""

    connect: float = 5.0
    first_byte: float = 1800.0
    between_chunks: float = 600.0
    held_bytes: int = 268_435_456


@dataclass(frozen=True, slots=True)
class Hub:
    """`token` reaches the downloader only."""

    endpoint: str = "https://huggingface.co"
    token: str | None = None
    shared_cache: Path | None = None  # an existing hub cache: read, never written


@dataclass(frozen=True, slots=True)
class Settings:
    data_dir: Path
    driver: str = "local"
    server: Server = Server()
    stores: Stores = Stores()
    reconcile: Reconcile = Reconcile()
    engines: Engines = Engines()
    traffic: Traffic = Traffic()
    gateway: Gateway = Gateway()
    hub: Hub = Hub()
    admin_key: str | None = None
    tiers: tuple[Tier, ...] = BUILT_IN
    log_level: str = "INFO"


@dataclass(frozen=True, slots=True)
class Client:
    """What the CLI needs to reach a server. None: the machine's own `up`."""

    url: str | None
    api_key: str | None


class _Environment:
    def __init__(self, values: Mapping[str, str]) -> None:
        self._values = values

    def text(self, name: str) -> str | None:
        return self._values.get(name, "").strip() or None

    def choice(self, name: str, default: str, known: tuple[str, ...]) -> str:
        given = self.text(name) or default
        text = next((word for word in known if word.lower() == given.lower()), None)
        if text is None:
            raise Invalid("invalid_setting", f"{name} is one of: {', '.join(known)}.")
        return text

    def _as(
        self,
        name: str,
        default: _Number,
        kind: Callable[[str], _Number],
        limits: tuple[float, float],
        what: str,
    ) -> _Number:
        text, (low, high) = self.text(name), limits
        if text is None:
            return default
        try:
            value = kind(text)
        except ValueError:
            value = kind("-1")  # below every limit
        if not low <= value <= high:
            upper = f"from {low:g} to {high:.0f}" if math.isfinite(high) else f"{low:g} at least"
            raise Invalid("invalid_setting", f"{name} must be {what}, {upper}.")
        return value

    def whole(self, name: str, default: int, low: int = 1, high: float = math.inf) -> int:
        return self._as(name, default, int, (low, high), "a whole number")

    def seconds(self, name: str, default: float, low: float = 0.05) -> float:
        return self._as(name, default, float, (low, _LONGEST), "a number of seconds")

    def port(self, name: str, default: int, low: int = 0) -> int:
        return self.whole(name, default, low, _HIGHEST_PORT)


def load_settings(environ: Mapping[str, str] | None = None, *, with_tiers: bool = True) -> Settings:
    """Settings from `environ` (the process's own by default). Raises Invalid, naming the
    variable, when a value is wrong. Without `with_tiers` the tiers file is not looked at:
    before anything is installed, nothing here reads YAML."""
    env = _Environment(os.environ if environ is None else environ)
    home = env.text("HOME")
    data_dir = env.text("SLIPSTREAM_DATA_DIR")
    settings = Settings(
        data_dir=Path(data_dir).expanduser().absolute()
        if data_dir
        else Path(home or Path.home()) / ".slipstream",
        driver=env.choice("SLIPSTREAM_DRIVER", "local", DRIVERS),
        server=_server(env),
        stores=Stores(
            database_url=_database_url(env.text("SLIPSTREAM_DATABASE_URL")),
            redis_url=_redis_url(env.text("SLIPSTREAM_REDIS_URL")),
            pool_size=env.whole("SLIPSTREAM_POOL_SIZE", Stores().pool_size),
            system_dir=Path(env.text("SLIPSTREAM_SYSTEM_DIR") or Stores().system_dir),
        ),
        reconcile=_reconcile(env),
        engines=_engines(env),
        traffic=_traffic(env),
        gateway=_gateway(env),
        hub=_hub(env),
        admin_key=env.text("SLIPSTREAM_ADMIN_KEY"),
        tiers=load_tiers(env.text("SLIPSTREAM_TIERS_FILE")) if with_tiers else BUILT_IN,
        log_level=env.choice("SLIPSTREAM_LOG_LEVEL", "INFO", LOG_LEVELS),
    )
    if not settings.reconcile.deadline < settings.reconcile.lease:
        raise Invalid(
            "invalid_setting",
            "SLIPSTREAM_RECONCILE_DEADLINE must be below SLIPSTREAM_RECONCILE_LEASE.",
        )
    if not settings.reconcile.lease < settings.reconcile.visibility_timeout:
        raise Invalid(
            "invalid_setting",
            "SLIPSTREAM_RECONCILE_LEASE must be below SLIPSTREAM_VISIBILITY_TIMEOUT.",
            hint="Otherwise the broker hands a task out again while it still runs.",
        )
    return settings


def load_client(environ: Mapping[str, str] | None = None) -> Client:
    env = _Environment(os.environ if environ is None else environ)
    return Client(env.text("SLIPSTREAM_URL"), env.text("SLIPSTREAM_API_KEY"))


def load_tiers(path: str | None) -> tuple[Tier, ...]:
    """The built-in tiers, with those of the YAML file at `path` added or replaced.

    Raises Invalid when the file can't be read or holds wrong values.
    """
    if path is None:
        return BUILT_IN
    import yaml  # here, so that preflight, which reads no tiers, runs before it is installed

    try:
        raw = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as e:
        raise Invalid(
            "invalid_tiers",
            "The tiers file can't be read.",
            hint=f"SLIPSTREAM_TIERS_FILE is {path}; {type(e).__name__}.",
        ) from e
    return tuple(merge(BUILT_IN, parse_tiers(raw)).values())


def _server(env: _Environment) -> Server:
    return Server(
        host=env.text("SLIPSTREAM_HOST") or Server().host,
        port=env.port("SLIPSTREAM_PORT", Server().port, low=1),
        api_port=env.port("SLIPSTREAM_API_PORT", Server().api_port),
        worker_metrics_port=env.port("SLIPSTREAM_WORKER_METRICS_PORT", 0),
    )


def _database_url(url: str | None) -> str | None:
    """Both common spellings, pinned to the driver that we ship."""
    if url is None:
        return None
    for scheme in ("postgres://", "postgresql://"):
        if url.startswith(scheme):
            return "postgresql+psycopg://" + url[len(scheme) :]
    if url.startswith("postgresql+psycopg://"):
        return url
    raise Invalid(
        "invalid_setting",
        "SLIPSTREAM_DATABASE_URL must be a PostgreSQL address.",
        hint="As postgresql://user:password@host:5432/name.",
    )


def _redis_url(url: str | None) -> str | None:
    if url is None or _is_address(url, ("redis", "rediss")) or url.startswith("unix://"):
        return url
    raise Invalid(
        "invalid_setting",
        "SLIPSTREAM_REDIS_URL must be the address of a Redis or Valkey.",
        hint="As redis://host:6379/0, rediss://host:6379/0 or unix:///path/to/socket?db=0.",
    )


def _reconcile(env: _Environment) -> Reconcile:
    d = Reconcile()
    return Reconcile(
        sweep_every=env.seconds("SLIPSTREAM_SWEEP_SECONDS", d.sweep_every),
        lease=env.seconds("SLIPSTREAM_RECONCILE_LEASE", d.lease),
        deadline=env.seconds("SLIPSTREAM_RECONCILE_DEADLINE", d.deadline),
        visibility_timeout=env.seconds("SLIPSTREAM_VISIBILITY_TIMEOUT", d.visibility_timeout),
        concurrency=env.whole("SLIPSTREAM_WORKER_THREADS", d.concurrency),
    )


def _engines(env: _Environment) -> Engines:
    d = Engines()
    return Engines(
        command=env.text("SLIPSTREAM_ENGINE_COMMAND"),
        start_timeout=env.seconds("SLIPSTREAM_START_TIMEOUT", d.start_timeout),
        attempts=env.whole("SLIPSTREAM_START_ATTEMPTS", d.attempts),
        retry_first=env.seconds("SLIPSTREAM_RETRY_FIRST", d.retry_first),
        retry_cap=env.seconds("SLIPSTREAM_RETRY_CAP", d.retry_cap),
        steady_after=env.seconds("SLIPSTREAM_STEADY_SECONDS", d.steady_after),
        stop_grace=env.seconds("SLIPSTREAM_STOP_GRACE", d.stop_grace),
        cpu_slots=env.whole("SLIPSTREAM_CPU_SLOTS", d.cpu_slots, low=0),
        log_bytes=env.whole("SLIPSTREAM_LOG_BYTES", d.log_bytes, low=10_000),
    )


def _traffic(env: _Environment) -> Traffic:
    d = Traffic()
    return Traffic(
        heartbeat_every=env.seconds("SLIPSTREAM_HEARTBEAT_SECONDS", d.heartbeat_every),
        gateway_silent=env.seconds("SLIPSTREAM_GATEWAY_SILENT", d.gateway_silent),
        drain_limit=env.seconds("SLIPSTREAM_DRAIN_SECONDS", d.drain_limit),
        settle=env.seconds("SLIPSTREAM_SETTLE_SECONDS", d.settle, low=0),
        minimum_uptime=env.seconds("SLIPSTREAM_MINIMUM_UPTIME", d.minimum_uptime, low=0),
        max_body_bytes=env.whole("SLIPSTREAM_MAX_BODY_BYTES", d.max_body_bytes),
    )


def _gateway(env: _Environment) -> Gateway:
    d = Gateway()
    return Gateway(
        connect=env.seconds("SLIPSTREAM_CONNECT_SECONDS", d.connect),
        first_byte=env.seconds("SLIPSTREAM_FIRST_BYTE_SECONDS", d.first_byte),
        between_chunks=env.seconds("SLIPSTREAM_CHUNK_SECONDS", d.between_chunks),
        held_bytes=env.whole("SLIPSTREAM_HELD_BYTES", d.held_bytes),
    )


def _hub(env: _Environment) -> Hub:
    cache = env.text("HF_HUB_CACHE")
    if cache is None:
        hf_home = env.text("HF_HOME")
        home = env.text("HOME")
        base = Path(hf_home) if hf_home else (Path(home) / ".cache/huggingface" if home else None)
        cache = str(base / "hub") if base else None
    return Hub(
        endpoint=_hub_endpoint(env.text("SLIPSTREAM_HUB_ENDPOINT") or Hub().endpoint),
        token=env.text("HF_TOKEN"),
        shared_cache=Path(cache).expanduser() if cache else None,
    )


def _hub_endpoint(url: str) -> str:
    if not _is_address(url, ("http", "https")):
        raise Invalid(
            "invalid_setting",
            "SLIPSTREAM_HUB_ENDPOINT must be an http or https address.",
            hint="As https://huggingface.co or http://mirror:8080.",
        )
    return url.rstrip("/")


def _is_address(url: str, schemes: tuple[str, ...]) -> bool:
    try:
        parts = urlsplit(url)
        return parts.scheme in schemes and bool(parts.hostname) and parts.port != 0
    except ValueError:  # a port that is none, a bracket that is not closed
        return False
