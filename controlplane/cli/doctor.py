"""What `slipstream doctor` looks at: each part by itself, so that one which is dead can't hide
the others."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from controlplane import machine
from controlplane.embedded import postgres, preflight, valkey
from controlplane.embedded.console import command
from controlplane.embedded.front_door import Answer, ask
from controlplane.embedded.leftovers import engines_of
from controlplane.embedded.state import RunFolder, Running
from controlplane.engine_envs import Installing, find, last_error
from controlplane.errors import AppError
from controlplane.paths import DataDir
from controlplane.settings import Settings


@dataclass(frozen=True, slots=True)
class Finding:
    """One part: whether it is well, what was seen, and what to do when it isn't."""

    part: str
    ok: bool
    seen: str
    fix: str = ""


@dataclass(frozen=True, slots=True)
class Site:
    """The data directory that is looked at, and what its `up` left in its run folder."""

    settings: Settings
    running: Running | None

    @property
    def host(self) -> str:
        return self.running.host if self.running else self.settings.server.host

    @property
    def port(self) -> int:
        return self.running.port if self.running else self.settings.server.port


def site_of(settings: Settings) -> Site:
    folder = RunFolder(settings.data_dir)
    return Site(settings, folder.read() if folder.holder() is not None else None)


def examine(settings: Settings) -> Iterator[Finding]:
    """Every part, the machine first, each once as long as it is well. Nothing is changed."""
    site, well = site_of(settings), set()
    for look in (_machine, _supervisor, _database, _broker, _front_door, _api, _health, _engine):
        try:
            for found in look(site):
                if not (found.ok and found.part in well):
                    yield found
                well |= {found.part} if found.ok else set()
        except AppError as e:
            yield Finding(look.__name__.strip("_").replace("_", " "), False, e.message, e.hint)


def _machine(site: Site) -> Iterator[Finding]:
    seen = machine.describe(site.settings.data_dir)
    said = dict(machine.sentences(seen))
    yield Finding(
        "GPU",
        not seen.gpu_fault,
        said["GPU"],
        "Run nvidia-smi; after a driver's update the machine needs a restart.",
    )
    yield Finding("processor", True, said["Processor"])
    yield from _stands(
        lambda: preflight.check_engine(site.settings, seen), "memory", said["Memory"]
    )
    yield from _stands(lambda: preflight.check_disk(site.settings, seen), "disk", said["Disk"])


def _stands(check: Callable[[], None], part: str, seen: str) -> Iterator[Finding]:
    try:
        check()
    except AppError as e:
        yield Finding(part, False, e.message, e.hint)
    else:
        yield Finding(part, True, seen)


def _supervisor(site: Site) -> Iterator[Finding]:
    holder = RunFolder(site.settings.data_dir).holder()
    if holder is not None:
        seen = f"process {holder}, data in {site.settings.data_dir}"
        yield Finding("supervisor", True, seen)
        return
    seen = f"nothing runs from {site.settings.data_dir}"
    yield Finding("supervisor", False, seen, f"Start it: {command('up')}")
    yield from _engines_without_a_supervisor(site)
    server = site.settings.server
    yield from _stands(
        lambda: preflight.check_port(server.host, server.port), "port", f"{server.port} is free"
    )


def _engines_without_a_supervisor(site: Site) -> Iterator[Finding]:
    """Those that `down --keep-engines` left are as somebody wanted them."""
    data_dir = site.settings.data_dir
    if not (left := engines_of(data_dir)):
        return
    seen = "still running: " + ", ".join(f"{e.name} (process {e.pid})" for e in left)
    crashed = RunFolder(data_dir).read() is not None
    seen += ", left by a crash" if crashed else ", kept by a down"
    fix = f"{command('up')} takes them over; {command('down')} ends them."
    yield Finding("engines", not crashed, seen, fix)


def _database(site: Site) -> Iterator[Finding]:
    stores = site.settings.stores
    if stores.database_url is not None or site.running is None:
        return  # what the api says of it counts, or why nothing runs
    sockets = postgres.sockets_of(site.settings.data_dir, stores.system_dir)
    if postgres.takes_connections(sockets):
        yield Finding("database", True, "the embedded PostgreSQL answers")
    else:
        yield _silent(site, "database", "the embedded PostgreSQL", "postgres")


def _broker(site: Site) -> Iterator[Finding]:
    url = site.settings.stores.redis_url
    if site.running is None:
        return
    if url is not None:
        where = valkey.shown(url)
        if valkey.given_answers(url):
            yield Finding("broker", True, f"the one at {where} answers")
        else:
            seen = f"the one at {where} does not answer; work goes on without it, slower"
            yield Finding("broker", False, seen, "Start it, or correct SLIPSTREAM_REDIS_URL.")
    elif valkey.answers(valkey.place_of(site.settings.data_dir)):
        yield Finding("broker", True, "the embedded Valkey answers")
    else:
        yield _silent(site, "broker", "the embedded Valkey", "valkey")


def _front_door(site: Site) -> Iterator[Finding]:
    if site.running is None:
        return
    answer = ask(site.host, site.port, "GET", "/healthz")
    if answer is not None and answer.status == 200:
        yield Finding("gateway", True, f"answers on port {site.port}")
    else:
        yield _silent(site, "gateway", f"port {site.port}", "gateway")


def _api(site: Site) -> Iterator[Finding]:
    if site.running is None:
        return
    answer = ask("127.0.0.1", site.running.api_port, "GET", "/readyz")
    if answer is None:
        yield _silent(site, "api", "the api", "api")
    elif answer.status != 200:
        yield Finding("api", False, _detail(answer), "See the database's line.")
    else:
        yield Finding("api", True, "answers, and so does its database")


def _health(site: Site) -> Iterator[Finding]:
    """What only the system itself can tell: how fresh its workers and gateways are."""
    if site.running is None:
        return
    key = key_of(site.settings)
    answer = ask("127.0.0.1", site.running.api_port, "GET", "/api/v1/health", key=key)
    if answer is None:
        return
    if answer.status in (401, 403):
        yield Finding(
            "admin key", False, _detail(answer), f"Start again: {command('up')} makes one"
        )
        return
    for part in answer.object.get("parts", []):
        if isinstance(part, dict):
            yield _of_health(part)


def _of_health(part: dict[str, Any]) -> Finding:
    age = part.get("age_seconds")
    seen = str(part.get("detail") or "well")
    if isinstance(age, int | float) and age:
        seen += f" Last proof {age:.0f} s ago."
    return Finding(f"{part.get('name')}", bool(part.get("ok")), seen, str(part.get("hint") or ""))


def _engine(site: Site) -> Iterator[Finding]:
    settings = site.settings
    if settings.driver != "local":
        return
    kinds = dict.fromkeys(d.kind for d in machine.find_devices(settings))
    for kind in kinds:
        found = find(settings, kind)
        name = f"engine {kind}"
        if isinstance(found, Installing):
            yield Finding(name, True, f"is being installed, {found.fraction:.0%}: {found.message}")
        elif found is not None:
            yield from _stands(
                lambda: preflight.check_engine_command(settings),
                name,
                f"{found.version}, {found.program[0]}",
            )
        else:
            why = last_error(settings, kind)
            again = f"Install it: {command(f'engines install {kind}')}"
            yield Finding(name, False, why.message if why else "is not installed", again)


def key_of(settings: Settings) -> str | None:
    """The key that the CLI has on this machine."""
    file = DataDir(settings.data_dir).admin_key
    try:
        return file.read_text(encoding="ascii").strip() or settings.admin_key
    except (OSError, UnicodeDecodeError):
        return settings.admin_key


def _silent(site: Site, part: str, what: str, log: str) -> Finding:
    file: Path = RunFolder(site.settings.data_dir).log(log)
    return Finding(part, False, f"{what} does not answer", f"It is started again; its log: {file}")


def _detail(answer: Answer) -> str:
    return str(answer.object.get("detail") or f"answers with status {answer.status}")
