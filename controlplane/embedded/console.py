"""What `slipstream up` says to the person who started it."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from controlplane.embedded.front_door import reachable, sign_in_path, url_host
from controlplane.errors import AppError, Kind
from controlplane.machine import Machine, sentences
from controlplane.paths import DataDir
from controlplane.settings import Settings


def say(text: str = "") -> None:
    """A line for the person. A terminal that is gone is no reason to stop."""
    try:
        sys.stdout.write(text + "\n")
        sys.stdout.flush()
    except OSError:
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115


def complain(error: AppError) -> None:
    """One sentence and what to do about it, on stderr."""
    try:
        hint = f"  {error.hint}\n" if error.hint else ""
        sys.stderr.write(f"{error.message}\n{hint}")
        sys.stderr.flush()
    except OSError:
        return


def exit_status(error: AppError) -> int:
    """As the command line has it: 2 a wrong value, 5 a part that does not answer, else 4."""
    return {Kind.INVALID: 2, Kind.UNAVAILABLE: 5}.get(error.kind, 4)


def show_machine(machine: Machine) -> None:
    say("This machine")
    table(sentences(machine))
    say()


def table(rows: Sequence[tuple[str, str]]) -> None:
    width = max(len(word) for word, _ in rows)
    for word, text in rows:
        say(f"  {word:<{width}}  {text}")


def origin(settings: Settings) -> str:
    return f"http://{url_host(reachable(settings.server.host))}:{settings.server.port}"


def show_addresses(settings: Settings, new_key: str | None) -> None:
    """Where everything is, with a link that signs in once; the admin key the first time."""
    here = origin(settings)
    rows = [
        ("REST API", f"{here}/api/v1   (described at /docs)"),
        ("OpenAI API", f"{here}/v1"),
    ]
    file = DataDir(settings.data_dir).admin_key
    path = sign_in_path(settings.server.host, settings.server.port, _key(file))
    if path is not None:
        rows.append(("Sign in", f"{here}{path}"))
        rows.append(("", f"(works once; for another: {command('open')})"))
    if new_key is not None:
        rows.append(("Admin key", new_key))
        rows.append(("", f"(shown this once; kept in {file})"))
    say()
    table(rows)
    say()


def tunnel(settings: Settings, environ: dict[str, str]) -> str | None:
    """The line that brings the front door to the machine in front of the person, when they
    sit at another one; None when they don't."""
    words = environ.get("SSH_CONNECTION", "").split()
    if len(words) != 4:
        return None
    port, ssh_port = settings.server.port, words[3]
    target = f"{environ.get('USER') or 'USER'}@{words[2]}"
    extra = [] if ssh_port == "22" else ["-p", ssh_port]
    where = f"{port}:{url_host(reachable(settings.server.host))}:{port}"
    return shlex.join(["ssh", "-N", "-L", where, *extra, target])


def command(words: str) -> str:
    """A command of ours that runs as pasted, whether or not an environment is active."""
    program = Path(sys.executable).with_name("slipstream")
    found = shutil.which("slipstream")
    if found is not None and Path(found).resolve() == program.resolve():
        return f"slipstream {words}"
    try:
        shown = str(program.relative_to(Path.cwd()))
    except ValueError:
        shown = str(program)
    return f"{shlex.quote(shown)} {words}"


def _key(file: Path) -> str:
    try:
        return file.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        return ""
