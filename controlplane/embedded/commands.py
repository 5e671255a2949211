"""`up`, in the foreground or behind, and `down`."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

from controlplane.embedded import preflight
from controlplane.embedded.children import run
from controlplane.embedded.console import (
    command,
    complain,
    exit_status,
    say,
    show_addresses,
    show_machine,
)
from controlplane.embedded.leftovers import end_lives, engines_of, life_of
from controlplane.embedded.logs import Follower
from controlplane.embedded.parts import environment, with_stores
from controlplane.embedded.signals import KEEP_ENGINES
from controlplane.embedded.state import RunFolder
from controlplane.embedded.supervisor import STOPS_ENGINES, Supervisor
from controlplane.errors import AppError, Unavailable
from controlplane.machine import describe
from controlplane.paths import DataDir
from controlplane.settings import Settings

_LOOK_EVERY = 0.05


def up(settings: Settings, *, detach: bool, describe_machine: bool = True) -> int:
    """Say what this machine can do and what stands in the way, then start everything. In the
    foreground it returns when all is stopped, else when all is ready. Raises AppError when
    something stands in the way; then nothing was started."""
    machine = describe(settings.data_dir)
    if describe_machine:
        show_machine(machine)
    preflight.check(settings, machine)
    if detach:
        return _behind(settings)
    return Supervisor(settings, detached=False).run()


def _behind(settings: Settings) -> int:
    folder = RunFolder(settings.data_dir)
    folder.make()
    log = folder.log("up")
    log.unlink(missing_ok=True)
    key_file = DataDir(settings.data_dir).admin_key
    had_key = key_file.exists() or settings.admin_key is not None
    follower = Follower(log)
    with os.fdopen(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)) as out:
        supervisor = subprocess.Popen(
            [sys.executable, "-m", "controlplane.embedded", "behind"],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            start_new_session=True,
        )
    if not _relay_until_ready(folder, supervisor, follower):
        return supervisor.wait()
    new_key = None if had_key else key_file.read_text(encoding="ascii").strip()
    show_addresses(settings, new_key)
    if settings.engines.command is None and settings.driver == "local":
        say(f"The engine is made ready meanwhile; its log: {folder.log('setup')}")
    say(f"It runs behind; {command('down')} stops everything, engines too.")
    return 0


def _relay_until_ready(
    folder: RunFolder, supervisor: subprocess.Popen[bytes], follower: Follower
) -> bool:
    """Pass on what the supervisor says. False when it ended instead."""
    while True:
        try:
            ended = supervisor.poll() is not None
            for line in follower.lines():
                say(line)
            if ended:
                return False
            running = folder.read()
            if running is not None and running.ready and running.pid == supervisor.pid:
                return True
            time.sleep(_LOOK_EVERY)
        except KeyboardInterrupt:
            supervisor.send_signal(signal.SIGTERM)


def down(settings: Settings, *, keep_engines: bool) -> None:
    """Stop what runs from the data directory and wait until it is gone; where nothing runs,
    end what a crash left. Ctrl-C meanwhile hurries it. Repeating it is a no-op."""
    folder = RunFolder(settings.data_dir)
    sign = KEEP_ENGINES if keep_engines else signal.SIGTERM
    holder = folder.holder()
    if holder is None:
        _end_what_was_left(settings, folder, keep_engines=keep_engines)
        return
    follower, life = Follower(folder.log("up")), life_of(holder)
    _send(holder, sign)
    say(f"Stopping process {holder}")
    there = True
    while there:
        there = folder.holder() is not None or (life is not None and life_of(holder) == life)
        for line in follower.lines():
            if line.startswith("  "):
                say(line)
        try:
            time.sleep(_LOOK_EVERY)
        except KeyboardInterrupt:
            _send(holder, sign)
    say("Stopped.")


def _end_what_was_left(settings: Settings, folder: RunFolder, *, keep_engines: bool) -> None:
    before = folder.read()
    if before is not None:
        end_lives(before.children.values(), grace=10.0)
    left, data = _count(len(engines_of(settings.data_dir))), DataDir(settings.data_dir)
    origin = "a crash had left" if before is not None else "had been kept"
    if keep_engines and left:
        say(f"No supervisor runs from {settings.data_dir}; {left} that {origin} may go on.")
        return
    if not keep_engines and (data.replicas.exists() or data.downloads.exists()):
        env = environment(with_stores(settings), "engines", os.environ)
        result = run([sys.executable, "-m", STOPS_ENGINES], env=env)
        if result.returncode != 0:
            last = (result.stderr.strip().splitlines() or ["it said nothing"])[-1]
            raise Unavailable(
                "engines_not_stopped",
                f"Engines that {origin} may still run: {last}",
                hint=f"{command('doctor')} names them.",
            )
    say(f"Stopped {left} that {origin}." if left else f"Nothing runs from {settings.data_dir}.")


def _count(engines: int) -> str:
    return "" if not engines else f"{engines} engine{'s' if engines > 1 else ''}"


def _send(pid: int, sign: signal.Signals) -> None:
    try:
        os.kill(pid, sign)
    except ProcessLookupError:
        return


def behind(settings: Settings) -> int:
    """The supervisor of `up -d`, started by it in a session of its own."""
    return Supervisor(settings, detached=True).run()


def guarded(settings: Settings, word: str, *, describe_machine: bool) -> int:
    """One of `up`, `up-behind` and `behind`, with its refusals told to the person."""
    try:
        if word == "behind":
            return behind(settings)
        return up(settings, detach=word == "up-behind", describe_machine=describe_machine)
    except AppError as e:
        complain(e)
        return exit_status(e)
