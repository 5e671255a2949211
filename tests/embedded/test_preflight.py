"""What stops `up` is one sentence and a way out, before anything is started."""

from __future__ import annotations

import dataclasses
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from controlplane.cli import doctor
from controlplane.domain.tiers import GIB
from controlplane.embedded import preflight
from controlplane.embedded.state import RunFolder
from controlplane.errors import AppError
from controlplane.machine import Gpu, Machine
from controlplane.settings import Engines, Server, Settings

ROOT = Path(__file__).parents[2]
GOOD = Machine(
    system="Debian GNU/Linux 12 (bookworm)",
    python="3.11.2",
    architecture="x86_64",
    processor="AMD EPYC",
    features=("AVX2",),
    cores=(0, 1),
    memory_bytes=8 * GIB,
    disk_free_bytes=40 * GIB,
    gpus=(),
)
H200 = Gpu(0, "GPU-0", "NVIDIA H200", 141 * GIB, "570.172.08")


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return Settings(tmp_path / "data", server=Server(port=s.getsockname()[1]))


def code_of(settings: Settings, **changes: object) -> str | None:
    machine = dataclasses.replace(GOOD, **changes)  # type: ignore[arg-type]
    try:
        preflight.check(settings, machine)
    except AppError as e:
        return e.code if e.hint else f"{e.code} has no hint"
    return None


def test_a_machine_that_has_what_it_needs_may_start(settings: Settings) -> None:
    assert code_of(settings) is None


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"features": ()}, "processor_not_supported"),
        ({"features": (), "architecture": "aarch64"}, None),
        ({"features": (), "gpus": (H200,)}, None),
        ({"memory_bytes": 2 * GIB}, "too_little_memory"),
        ({"memory_bytes": 2 * GIB, "gpus": (H200,)}, None),
        ({"disk_free_bytes": 3 * GIB}, "disk_full"),
        ({"disk_free_bytes": 10 * GIB, "gpus": (H200,)}, "disk_full"),
    ],
)
def test_what_the_engine_lacks_is_named(
    settings: Settings, changes: dict[str, object], code: str | None
) -> None:
    assert code_of(settings, **changes) == code


def test_with_an_engine_of_one_s_own_only_room_to_run_is_needed(settings: Settings) -> None:
    own = dataclasses.replace(settings, engines=Engines(command=f"{sys.executable} serve"))
    assert code_of(own, features=(), memory_bytes=GIB, disk_free_bytes=GIB) is None
    assert code_of(own, disk_free_bytes=GIB // 4) == "disk_full"


@pytest.mark.parametrize(
    ("command", "code"),
    [
        ("/nowhere/vllm serve", "no_engine_program"),
        ("no-such-program-here", "no_engine_program"),
        ("'unclosed", "invalid_setting"),
    ],
)
def test_an_engine_that_is_no_program_stops_up_and_is_named_by_doctor(
    settings: Settings, command: str, code: str
) -> None:
    own = dataclasses.replace(settings, engines=Engines(command=command))
    assert code_of(own) == code
    found = next(f for f in doctor.examine(own) if not f.ok and f.part.startswith("engine"))
    assert "SLIPSTREAM_ENGINE_COMMAND" in found.seen


@pytest.mark.parametrize("key", ["short", "with spaces in it", "größer-als-zwölf"])
def test_a_chosen_key_that_is_no_secret_is_refused_before_anything_is_started(
    settings: Settings, key: str
) -> None:
    assert code_of(dataclasses.replace(settings, admin_key=key)) == "weak_key"
    assert code_of(dataclasses.replace(settings, admin_key="long-enough-1")) is None


def test_an_engine_that_is_there_needs_no_room_for_another(settings: Settings) -> None:
    engine = settings.data_dir / "engines" / "cpu-0.32.0"
    engine.mkdir(parents=True)
    (engine / "slipstream-engine.json").write_text("{}")
    assert code_of(settings, disk_free_bytes=GIB) is None


def test_a_taken_port_names_who_took_it_and_a_free_one(settings: Settings) -> None:
    with socket.create_server(("127.0.0.1", settings.server.port)):
        with pytest.raises(AppError) as caught:
            preflight.check(settings, GOOD)
    assert caught.value.code == "port_taken"
    assert f"process {os.getpid()}" in caught.value.message
    other = int(caught.value.hint.rpartition("=")[2])
    assert other != settings.server.port


@pytest.mark.parametrize(
    ("host", "port", "code"),
    [("203.0.113.7", 8400, "invalid_setting"), ("127.0.0.1", 99_999, "invalid_setting")],
)
def test_an_address_that_can_t_be_listened_on_is_refused(host: str, port: int, code: str) -> None:
    with pytest.raises(AppError) as caught:
        preflight.check_port(host, port)
    assert caught.value.code == code


def test_a_data_directory_in_use_names_the_process(settings: Settings) -> None:
    folder = RunFolder(settings.data_dir)
    folder.make()
    with folder.held():
        with pytest.raises(AppError) as caught:
            preflight.check(settings, GOOD)
    assert caught.value.code == "already_running"
    assert str(os.getpid()) in caught.value.message
    assert code_of(settings) is None


def test_it_runs_before_anything_is_installed(settings: Settings) -> None:
    """As `make up` calls it: isolated from every installed package."""
    with socket.create_server(("127.0.0.1", settings.server.port)):
        result = subprocess.run(
            [sys.executable, "-S", "-m", "controlplane.embedded.preflight", ".venv"],
            cwd=ROOT,
            env={
                "PATH": os.environ["PATH"],
                "SLIPSTREAM_DATA_DIR": str(settings.data_dir),
                "SLIPSTREAM_PORT": str(settings.server.port),
                "SLIPSTREAM_ENGINE_COMMAND": sys.executable,
                "SLIPSTREAM_TIERS_FILE": "/nowhere/tiers.yaml",
            },
            capture_output=True,
            text=True,
            check=False,
        )
    assert result.returncode == 4
    assert "This machine" in result.stdout
    assert f"Port {settings.server.port} is taken" in result.stderr
    assert "Traceback" not in result.stderr
    assert not settings.data_dir.exists()


def test_a_tiers_file_that_can_t_be_read_is_told_once_everything_is_installed(
    settings: Settings,
) -> None:
    environ = {
        "PATH": os.environ["PATH"],
        "SLIPSTREAM_DATA_DIR": str(settings.data_dir),
        "SLIPSTREAM_TIERS_FILE": "/nowhere/tiers.yaml",
    }
    result = subprocess.run(
        [sys.executable, "-m", "controlplane.embedded", "up"],
        cwd=ROOT,
        env=environ,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 2
    assert result.stderr.startswith("The tiers file can't be read.\n")
    assert not settings.data_dir.exists()
