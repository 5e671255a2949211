"""What would stop `up`, found before anything is downloaded or started.

`python3 -m controlplane.embedded.preflight` is the first thing that `make up` runs, with the
system's Python and nothing installed: standard library only.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shlex
import shutil
import socket
import sys
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path

from controlplane.domain.tiers import GIB
from controlplane.embedded import belonging, postgres
from controlplane.embedded.console import complain, exit_status, show_machine
from controlplane.embedded.leftovers import command_of
from controlplane.embedded.state import RunFolder, already_runs
from controlplane.errors import AppError, Conflict, Invalid, Refused
from controlplane.machine import Machine, describe
from controlplane.paths import DataDir
from controlplane.settings import Settings, load_settings

# Measured: the engine's environment takes 2.1 GB on the CPU, the demo models 0.4.
_DISK_WITH_CPU_ENGINE = 4 * GIB
_DISK_WITH_GPU_ENGINE = 15 * GIB
_DISK_TO_RUN = GIB // 2
# The CPU engine takes 2.5 GB with the smallest models, and we a half.
_MEMORY_WITH_CPU_ENGINE = 3 * GIB


def check(settings: Settings, machine: Machine) -> None:
    """Raises AppError, for the first thing that stands in the way of `up`; port last, since a
    system that runs already explains it."""
    holder = RunFolder(settings.data_dir).holder()
    if holder is not None:
        raise already_runs(holder, settings.data_dir)
    check_database(settings)
    check_admin_key(settings)
    check_engine_command(settings)
    check_engine(settings, machine)
    check_disk(settings, machine)
    check_port(settings.server.host, settings.server.port)


def check_install(folder: Path) -> None:
    """Raises Refused when Python here can't make an environment."""
    if not (folder / "bin" / "python").exists() and find_spec("ensurepip") is None:
        version = f"{sys.version_info.major}.{sys.version_info.minor}"
        raise Refused(
            "no_venv",
            f"Python {version} here can't make environments: its venv package is missing.",
            hint=f"sudo apt install python{version}-venv",
        )


def check_port(host: str, port: int) -> None:
    """Raises Conflict when another program listens there, Refused when we may not, Invalid
    when this machine has no such address."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as s:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            s.bind((host, port))
        except OverflowError:
            raise Invalid("invalid_setting", f"{port} is no port.") from None
        except OSError as e:
            _explain(e, host, port)


def _explain(e: OSError, host: str, port: int) -> None:
    if e.errno == errno.EADDRINUSE:
        who = listener(port)
        raise Conflict(
            "port_taken",
            f"Port {port} is taken{f' by {who}' if who else ''}.",
            hint=f"Stop that program, or choose another port: SLIPSTREAM_PORT={_free_near(port)}",
        ) from e
    if e.errno == errno.EACCES:
        raise Refused(
            "port_not_allowed",
            f"This user may not listen on port {port}.",
            hint="Choose one above 1023: SLIPSTREAM_PORT=8400",
        ) from e
    raise Invalid(
        "invalid_setting",
        f"This machine can't listen on {host} ({os.strerror(e.errno or 0)}).",
        hint="SLIPSTREAM_HOST is an address of this machine, as 127.0.0.1 or 0.0.0.0.",
    ) from e


def listener(port: int) -> str | None:
    """Who listens on a TCP port, as far as this user may see: "process 12 (nginx)"."""
    inodes = {
        words[9]
        for table in ("tcp", "tcp6")
        for line in _lines(f"/proc/net/{table}")
        if (words := line.split())[3] == "0A" and int(words[1].rpartition(":")[2], 16) == port
    }
    wanted = {f"socket:[{inode}]" for inode in inodes}
    for pid in filter(str.isdigit, os.listdir("/proc")) if wanted else ():
        if wanted.intersection(_open_files(pid)):
            words = command_of(int(pid))
            return f"process {pid}" + (f" ({Path(words[0]).name})" if words and words[0] else "")
    return None


def _open_files(pid: str) -> Iterator[str]:
    """What a process has open, as far as this user may see; it may change meanwhile."""
    with contextlib.suppress(OSError):
        for fd in os.listdir(f"/proc/{pid}/fd"):
            with contextlib.suppress(OSError):
                yield os.readlink(f"/proc/{pid}/fd/{fd}")


def _lines(table: str) -> list[str]:
    try:
        return Path(table).read_text(encoding="ascii").splitlines()[1:]
    except OSError:
        return []


def _free_near(port: int) -> int:
    for other in range(port + 1, min(port + 100, 65_536)):
        with socket.socket() as s:
            try:
                s.bind(("127.0.0.1", other))
            except OSError:
                continue
            return other
    return 8400


def _installs_engine(settings: Settings) -> bool:
    return settings.driver == "local" and settings.engines.command is None


def check_database(settings: Settings) -> None:
    """Raises Refused when the embedded database belongs to an earlier data directory."""
    if settings.stores.database_url is None:
        home = postgres.home_of(settings.data_dir, settings.stores.system_dir)
        belonging.check(settings.data_dir, home)


def check_admin_key(settings: Settings) -> None:
    """Raises Invalid for a chosen key that would be refused once the stores run."""
    if settings.admin_key is not None:
        from controlplane.auth.keys import chosen_key  # the supervisor has no other use for it

        chosen_key(settings.admin_key)


def check_engine_command(settings: Settings) -> None:
    """Raises Invalid when the engine that was named by hand is no program here."""
    command = settings.engines.command
    if command is None or settings.driver != "local":
        return
    try:
        words = shlex.split(command)
    except ValueError:
        words = []
    if not words:
        raise Invalid(
            "invalid_setting",
            "SLIPSTREAM_ENGINE_COMMAND is not a command.",
            hint="It is read as a shell reads words: check its quotes.",
        )
    if shutil.which(words[0]) is None:
        raise Invalid(
            "no_engine_program",
            f"SLIPSTREAM_ENGINE_COMMAND names {words[0]}, and there is no such program here.",
            hint="Give its whole path, or leave the setting out to have an engine installed.",
        )


def check_engine(settings: Settings, machine: Machine) -> None:
    """Raises Refused where the engine that would be installed can't run."""
    if not _installs_engine(settings) or machine.gpus:
        return
    if not machine.cpu_engine_runs:
        raise Refused(
            "processor_not_supported",
            f"The CPU engine needs AVX2, and this processor ({machine.processor}) has none.",
            hint="Use a newer processor or a GPU, or set SLIPSTREAM_ENGINE_COMMAND.",
        )
    if machine.memory_bytes < _MEMORY_WITH_CPU_ENGINE:
        raise Refused(
            "too_little_memory",
            f"An engine on the processor needs {_MEMORY_WITH_CPU_ENGINE / GIB:.0f} GiB of"
            f" memory, and {machine.memory_bytes / GIB:.1f} GiB are here.",
            hint="Give this machine or container more memory.",
        )


def check_disk(settings: Settings, machine: Machine) -> None:
    """Raises Refused where the disk has no room for what is still to be installed."""
    needed = _DISK_TO_RUN
    if _installs_engine(settings) and not any(
        DataDir(settings.data_dir).engines.glob("*/slipstream-engine.json")
    ):
        needed = _DISK_WITH_GPU_ENGINE if machine.gpus else _DISK_WITH_CPU_ENGINE
    if machine.disk_free_bytes < needed:
        raise Refused(
            "disk_full",
            f"{needed / GIB:.1f} GiB of disk are needed for {settings.data_dir}, and"
            f" {machine.disk_free_bytes / GIB:.1f} GiB are free.",
            hint="Free some, or set SLIPSTREAM_DATA_DIR to a folder on a larger disk.",
        )


def main(arguments: Sequence[str]) -> int:
    """Describe the machine and look for what would stop the environment in the folder
    `arguments[0]` from being made and `up` from starting."""
    try:
        settings = load_settings(with_tiers=False)
        machine = describe(settings.data_dir)
        show_machine(machine)
        check_install(Path(arguments[0]))
        check(settings, machine)
    except AppError as e:
        complain(e)
        return exit_status(e)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
