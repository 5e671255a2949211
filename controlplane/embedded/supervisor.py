"""The supervisor behind `slipstream up`: starts the parts in order, keeps them alive, ends
them in order. One thread, and nothing imported that the parts themselves need, so it is small.
"""

from __future__ import annotations

import errno
import os
import signal
import socket
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

from controlplane.embedded import belonging, postgres, valkey
from controlplane.embedded.children import run, spawn
from controlplane.embedded.console import command, complain, say, show_addresses
from controlplane.embedded.front_door import ready
from controlplane.embedded.kept import Kept, Launch
from controlplane.embedded.leftovers import Life, end_lives
from controlplane.embedded.logs import last_lines, rotate
from controlplane.embedded.parts import Part, environment, parts, with_stores
from controlplane.embedded.setup import EngineSetup
from controlplane.embedded.signals import Asked
from controlplane.embedded.state import RunFolder, Running
from controlplane.errors import AppError, Refused, Unavailable
from controlplane.settings import Settings

_TICK = 0.2
_READY_SECONDS = 180.0  # a cold disk and two busy cores
_FAILURES_ALLOWED = 3  # of one part before everything was ready once
_ROTATE_EVERY = 10.0
_HURRIED_GRACE = 3.0
STOPS_ENGINES = "worker.drivers.local.stop_all"


class Supervisor:
    """One `up`. `detached`: its words go to a log, so no secret is among them."""

    def __init__(self, settings: Settings, *, detached: bool) -> None:
        server = replace(
            settings.server,
            api_port=settings.server.api_port or _free_port(),
            worker_metrics_port=settings.server.worker_metrics_port or _free_port(),
        )
        settings = replace(settings, server=server)
        self._own_database = settings.stores.database_url is None
        self._own_broker = settings.stores.redis_url is None
        self._settings = settings
        self._folder = RunFolder(settings.data_dir)
        self._detached = detached
        self._asked = Asked()
        self._stores: list[Kept] = []
        self._parts: list[Kept] = []
        self._setup: EngineSetup | None = None
        self._ready = False

    def run(self) -> int:
        """Returns the exit status, when everything that it started is gone."""
        self._folder.make()
        with self._folder.held(), self._asked:
            began = time.monotonic()
            try:
                self._clear_leftovers()
                self._start(began)
                self._keep()
            except (AppError, OSError) as e:
                complain(e if isinstance(e, AppError) else _of_system(e))
                self._end(engines=self._ready)
                return 5 if isinstance(e, Unavailable) else 4
            self._end(engines=not self._asked.keep_engines)
            return 0

    def _clear_leftovers(self) -> None:
        """An `up` that was killed told its children to end; engines go on and are adopted."""
        before = self._folder.read()
        if before is not None:
            end_lives(before.children.values(), grace=10.0)

    def _start(self, began: float) -> None:
        say(_where(self._settings))
        self._record()
        self._start_stores()
        new_key = self._bootstrap()
        env = partial(environment, self._settings, base=os.environ)
        for part in parts(self._settings):
            if self._asked:
                return
            self._parts.append(self._kept(part, env(part.name)))
            self._parts[-1].start()
        self._record()
        self._wait(lambda: ready(self._settings.server.host, self._settings.server.port))
        if self._asked:
            return
        self._ready = True
        for kept in self._parts:
            kept.failures = 0
        self._record()
        say(f"  ready after {time.monotonic() - began:.1f} s")
        if not self._detached:
            show_addresses(self._settings, new_key)
            say("Ctrl-C stops everything, engines too.")
        self._setup = EngineSetup.begin(self._settings, self._folder.log("setup"))

    def _start_stores(self) -> None:
        stores = self._settings.stores
        if self._own_broker:
            broker = valkey.place_of(self._settings.data_dir)
            self._store("broker", broker.log, partial(valkey.launch, broker), signal.SIGTERM)
        if self._own_database:
            place = postgres.place_of(self._settings.data_dir, stores.system_dir)
            if not place.data.exists():
                say("  database: made for the first time")
            belonging.check(self._settings.data_dir, place.home)
            postgres.create(place)
            belonging.claim(self._settings.data_dir, place.home)
            self._store("database", place.log, partial(postgres.launch, place), signal.SIGINT)
            self._wait(lambda: postgres.answers(place))
        if self._own_broker:
            self._wait(lambda: valkey.answers(broker))
        if self._own_database or self._own_broker:
            say(f"  {_answering(database=self._own_database, broker=self._own_broker)}")
        if stores.redis_url is not None and not valkey.given_answers(stores.redis_url):
            where = valkey.shown(stores.redis_url)
            say(f"  The broker at {where} does not answer; work goes on without it, slower.")
        self._settings = with_stores(self._settings)

    def _store(self, name: str, log: Path, launch: Launch, sign: signal.Signals) -> None:
        kept = Kept(name, log, launch, sign, grace=20.0)
        self._stores.append(kept)
        kept.start()

    def _kept(self, part: Part, env: dict[str, str]) -> Kept:
        log = self._folder.log(part.name)
        launch = partial(spawn, part.argv, log=log, env=env)
        return Kept(part.name, log, launch, signal.SIGTERM, part.grace, part.says)

    def _bootstrap(self) -> str | None:
        """Bring the schema up to date; returns an admin key that was made just now."""
        log = self._folder.log("bootstrap")
        result = run(
            [sys.executable, "-m", "controlplane.services.bootstrap"],
            env=environment(self._settings, "bootstrap", os.environ),
        )
        with log.open("a", encoding="utf-8") as file:
            file.write(result.stderr)
        if result.returncode != 0:
            last = (last_lines(log, 1) or ["it said nothing"])[0]
            raise Unavailable(
                "bootstrap_failed",
                f"The database could not be prepared: {last}",
                hint=f"Its log says more: {log}",
            )
        say("  schema is up to date")
        return result.stdout.strip() or None

    def _wait(self, true: Callable[[], bool]) -> None:
        """Until `true()`, somebody asks to stop, or it is clear that it won't be."""
        deadline = time.monotonic() + _READY_SECONDS
        while not self._asked and not true():
            for kept in (*self._stores, *self._parts):
                self._look(kept)
                if kept.failures >= _FAILURES_ALLOWED:
                    raise _gives_up(kept, "does not stay up")
            if time.monotonic() > deadline:
                late = next((k for k in self._parts if not k.alive), None)
                raise _gives_up(late, "did not start") if late else _not_ready(self._parts)
            self._asked.wait(0.03)

    def _keep(self) -> None:
        rotated = time.monotonic()
        while not self._asked:
            for kept in (*self._stores, *self._parts):
                self._look(kept)
            if self._setup is not None and not self._detached:
                self._setup.relay()
            if time.monotonic() - rotated > _ROTATE_EVERY:
                rotated = time.monotonic()
                for log in self._folder.path.glob("*.log"):
                    rotate(log, self._settings.engines.log_bytes)
            self._asked.wait(_TICK)

    def _look(self, kept: Kept) -> None:
        told = kept.look()
        if told is not None:
            self._record()
        if told:
            say(f"{time.strftime('%H:%M:%S')} {told}; its log: {kept.log}")

    def _record(self) -> None:
        server = self._settings.server
        lives: dict[str, Life] = {
            k.name: life for k in (*self._stores, *self._parts) if (life := k.life) is not None
        }
        self._folder.write(
            Running(os.getpid(), server.host, server.port, server.api_port, self._ready, lives)
        )

    def _end(self, *, engines: bool) -> None:
        """Requests first, then the work, the engines, what people ask, and last the stores. A
        second Ctrl-C waits for nothing that can be cut."""
        say("Stopping" + ("" if self._detached else " (Ctrl-C again hurries)"))
        if self._setup is not None:
            self._setup.end()
        by_name = {k.name: k for k in self._parts}
        for name in ("gateway", "worker"):
            self._end_one(by_name.get(name))
        if engines and self._parts:
            self._end_engines()
        self._end_one(by_name.get("api"))
        for kept in reversed(self._stores):
            self._end_one(kept)
        say("Stopped.")

    def _end_one(self, kept: Kept | None) -> None:
        if kept is None or not kept.alive:
            return
        say(f"  {kept.name}" + (f" ({kept.says})" if kept.says else ""))
        kept.tell()
        began = time.monotonic()
        while kept.alive:
            grace = min(kept.grace, _HURRIED_GRACE) if self._asked.hurried else kept.grace
            if time.monotonic() - began > grace:
                say(f"  {kept.name} did not end and was killed")
                kept.kill()
                return
            self._asked.wait(0.05)

    def _end_engines(self) -> None:
        if self._settings.driver != "local":
            return
        say("  engines")
        env = environment(self._settings, "engines", os.environ)
        result = run([sys.executable, "-m", STOPS_ENGINES], env=env)
        if result.returncode != 0:
            last = (result.stderr.strip().splitlines() or ["it said nothing"])[-1]
            say(f"  engines may still run ({last}); {command('doctor')} looks")


def _where(settings: Settings) -> str:
    """Where everything lies: what a person backs up, or removes to begin anew."""
    said = f"Starting, with everything in {settings.data_dir}"
    home = postgres.home_of(settings.data_dir, settings.stores.system_dir)
    if settings.stores.database_url is None and home != settings.data_dir:
        said += f"; the database, which does not run as root, in {home}"
    return said


def _answering(*, database: bool, broker: bool) -> str:
    """Which of the embedded stores were waited for; of a given database the schema tells."""
    if database and broker:
        return "database and broker answer"
    return "database answers" if database else "broker answers"


def _gives_up(kept: Kept, what: str) -> Unavailable:
    lines = "\n  ".join(last_lines(kept.log, 5))
    return Unavailable(
        f"{kept.name}_did_not_start",
        f"The {kept.name} {what}.",
        hint=f"The end of its log, {kept.log}:\n  {lines}",
    )


def _not_ready(kept: list[Kept]) -> Unavailable:
    return Unavailable(
        "not_ready",
        f"Everything runs, and nothing was ready within {_READY_SECONDS:.0f} seconds.",
        hint="The logs: " + ", ".join(str(k.log) for k in kept),
    )


def _of_system(e: OSError) -> Refused:
    """A full disk, a folder that may not be written: one sentence."""
    full = e.errno in (errno.ENOSPC, errno.EDQUOT)
    return Refused(
        "disk_full" if full else "system_refused",
        f"{e.strerror or type(e).__name__}{f': {e.filename}' if e.filename else ''}.",
        hint="Free some space on that disk." if full else "Check SLIPSTREAM_DATA_DIR.",
    )


def _free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port: int = s.getsockname()[1]
        return port
