"""`slipstream up` as a person meets it: the real parts, under a supervisor of their own."""

from __future__ import annotations

import os
import pty
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx2
import pytest

from controlplane.embedded.front_door import ask
from controlplane.embedded.leftovers import Life, life_of
from controlplane.embedded.state import RunFolder, Running
from tests.system.machine import Machine

pytestmark = [pytest.mark.system, pytest.mark.timeout(600)]

ROOT = Path(__file__).parents[2]
STUB = ROOT / "tests" / "stub_engine" / "__main__.py"
PATIENCE = 240.0


def eventually(true: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while not true():
        assert time.monotonic() < deadline, f"never came: {what}"
        time.sleep(0.05)


class Up:
    """One data directory and the commands that a person gives for it."""

    def __init__(self, base: Path) -> None:
        self.data = base / "data"
        self.folder = RunFolder(self.data)
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            self.port: int = s.getsockname()[1]
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("SLIPSTREAM_", "HF_"))}
        self.env = kept | {
            "SLIPSTREAM_DATA_DIR": str(self.data),
            "SLIPSTREAM_SYSTEM_DIR": str(base / "system"),
            "SLIPSTREAM_PORT": str(self.port),
            "SLIPSTREAM_ENGINE_COMMAND": f"{sys.executable} {STUB}",
            "PYTHONPATH": str(ROOT),
        }

    def start(self) -> subprocess.CompletedProcess[str]:
        """`up -d`."""
        argv = [sys.executable, "-m", "controlplane.embedded", "up-behind"]
        return subprocess.run(
            argv, env=self.env, capture_output=True, text=True, check=False, timeout=PATIENCE
        )

    def down(self) -> str:
        script = (
            "from controlplane.embedded.commands import down\n"
            "from controlplane.settings import load_settings\n"
            "down(load_settings(), keep_engines=False)\n"
        )
        argv = [sys.executable, "-c", script]
        return subprocess.run(
            argv, env=self.env, capture_output=True, text=True, check=True, timeout=PATIENCE
        ).stdout

    @property
    def running(self) -> Running:
        found = self.folder.read()
        assert found is not None
        return found

    def is_ready(self) -> bool:
        answer = ask("127.0.0.1", self.port, "GET", "/readyz")
        return answer is not None and answer.status == 200

    def left(self) -> list[str]:
        """Processes whose command or environment names our folder."""
        mine = []
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                told = Path(f"/proc/{pid}/environ").read_bytes()
                words = Path(f"/proc/{pid}/cmdline").read_bytes()
            except OSError:
                continue
            if os.fsencode(self.data.parent) in told + words and life_of(int(pid)) is not None:
                mine.append(words.decode(errors="replace").replace("\0", " "))
        return mine


@pytest.fixture
def up() -> Iterator[Up]:
    with tempfile.TemporaryDirectory(prefix="slipstream-tests-") as text:
        base = Path(text)
        base.chmod(0o711)
        made = Up(base)
        try:
            yield made
        finally:
            made.down()
            assert made.left() == []


def test_up_runs_behind_keeps_its_parts_alive_and_goes_down_without_a_trace(up: Up) -> None:
    said = up.start()
    assert said.returncode == 0, said.stdout + said.stderr
    assert up.is_ready()
    key = (up.data / "admin-key").read_text().strip()
    assert f"Admin key   {key}" in said.stdout
    assert f"http://127.0.0.1:{up.port}/sign-in?token=" in said.stdout
    assert (up.data / "admin-key").stat().st_mode & 0o777 == 0o600
    assert key not in up.folder.log("up").read_text()
    assert set(up.running.children) == {"broker", "database", "gateway", "worker", "api"}

    second = up.start()
    assert second.returncode == 4
    assert f"(process {up.running.pid})" in second.stderr

    for name in ("worker", "api", "gateway", "broker", "database"):
        killed = up.running.children[name]
        os.kill(killed.pid, signal.SIGKILL)
        eventually(lambda n=name, k=killed: _reborn(up, n, k), f"a new {name}")  # type: ignore[misc]
    eventually(up.is_ready, "ready again")

    assert up.down().endswith("Stopped.\n")
    assert up.left() == []
    assert not ask("127.0.0.1", up.port, "GET", "/healthz")
    assert "Nothing runs" in up.down()


def _reborn(up: Up, name: str, killed: Life) -> bool:
    found = up.folder.read()
    return found is not None and found.children.get(name) not in (None, killed)


def test_after_a_killed_supervisor_the_next_up_goes_on_with_data_and_engines(up: Up) -> None:
    assert up.start().returncode == 0
    key = (up.data / "admin-key").read_text()
    hands = _hands_on(up, key.strip())
    hands.deploy("hello", hands.model("target"))
    hands.wait_phase("hello", "ready", patience=PATIENCE)
    (engine,) = hands.engines("hello")
    before = up.running

    os.kill(before.pid, signal.SIGKILL)
    again = up.start()
    assert again.returncode == 0, again.stdout + again.stderr
    assert "Admin key" not in again.stdout
    assert (up.data / "admin-key").read_text() == key
    assert not any(life_of(x.pid) == x for x in before.children.values())
    assert hands.wait_phase("hello", "ready", patience=PATIENCE)["status"]["light"] == "green"
    assert hands.ask("hello").status_code == 200
    assert hands.engines("hello") == [engine]

    os.kill(up.running.pid, signal.SIGKILL)
    eventually(lambda: up.folder.holder() is None, "nobody holds it")
    assert up.down() == "Stopped 1 engine that a crash had left.\n"
    assert not engine.is_running()
    assert "Nothing runs" in up.down()
    hands.http.close()


def _hands_on(up: Up, key: str) -> Machine:
    """The system tests' hands, on this `up` instead of processes of their own."""
    hands = Machine(up.data.parent, "", "")
    hands.http.close()
    hands.port = up.port
    hands.http = httpx2.Client(
        base_url=f"http://127.0.0.1:{up.port}",
        headers={"Authorization": f"Bearer {key}"},
        timeout=60,
    )
    return hands


def test_ctrl_c_in_a_terminal_stops_everything_in_order(up: Up) -> None:
    terminal, theirs = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-m", "controlplane.embedded", "up"],
        env=up.env,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
    ) as process:
        os.close(theirs)
        screen = _Screen(terminal)
        try:
            eventually(lambda: "Ctrl-C stops everything" in screen.look(), "ready")
            process.send_signal(signal.SIGINT)
            eventually(lambda: process.poll() is not None or not screen.look(), "the end")
            assert process.wait(PATIENCE) == 0
        finally:
            process.terminate()
            process.wait(PATIENCE)
            text = screen.look()
            os.close(terminal)
    ends = [text.index(f"  {name}", text.index("Stopping")) for name in
            ("gateway", "worker", "engines", "api", "database", "broker", )]  # fmt: skip
    assert ends == sorted(ends)
    assert "Traceback" not in text
    assert up.left() == []


class _Screen:
    """All that was written to a terminal so far."""

    def __init__(self, fd: int) -> None:
        os.set_blocking(fd, False)
        self._fd, self._text = fd, ""

    def look(self) -> str:
        try:
            while more := os.read(self._fd, 65_536):
                self._text += more.decode("utf-8", "replace")
        except OSError:  # nothing new, or nobody has it open any more
            return self._text
        return self._text


def test_a_part_that_can_t_start_is_named_with_the_end_of_its_log(up: Up) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        up.env["SLIPSTREAM_API_PORT"] = str(taken.getsockname()[1])
        said = up.start()
    assert said.returncode == 5
    assert "The api does not stay up." in said.stdout
    assert "address already in use" in said.stdout
    assert "Traceback" not in said.stdout.partition("The end of its log")[0]
    assert up.left() == []
    assert up.folder.holder() is None


def test_stores_that_were_given_are_used_and_left_alone(
    up: Up, database_url: str, valkey_url: str
) -> None:
    up.env |= {"SLIPSTREAM_DATABASE_URL": database_url, "SLIPSTREAM_REDIS_URL": valkey_url}
    said = up.start()
    assert said.returncode == 0, said.stdout + said.stderr
    assert set(up.running.children) == {"gateway", "worker", "api"}
    assert not (up.data / "postgres").exists()
    assert " answer" not in said.stdout, "nothing is said of what was not started here"
    assert up.running.ready


@pytest.mark.skipif(os.geteuid() != 0, reason="the database lies elsewhere for root only")
def test_a_new_data_directory_finds_no_earlier_database_and_keys(up: Up) -> None:
    said = up.start()
    assert said.returncode == 0, said.stdout + said.stderr
    (home,) = (p.parent for p in (up.data.parent / "system").glob("*/postgres"))
    assert f"; the database, which does not run as root, in {home}\n" in said.stdout
    up.down()
    assert up.start().returncode == 0
    up.down()

    shutil.rmtree(up.data)
    refused = up.start()
    assert refused.returncode == 4
    assert f"rm -r {home}" in refused.stderr
    assert not up.data.exists()
    shutil.rmtree(home)
    anew = up.start()
    assert anew.returncode == 0, anew.stdout + anew.stderr
    assert "Admin key" in anew.stdout
