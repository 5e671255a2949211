"""Finding engines: pure reading."""

import json
from pathlib import Path

import pytest

from controlplane.domain.tiers import DeviceKind
from controlplane.engine_envs import EngineEnv, Installing, find, installed, last_error
from controlplane.engine_envs.environments import MARKER, install_job
from controlplane.errors import Invalid, Refused
from controlplane.long_jobs import Progress
from controlplane.paths import DataDir
from controlplane.settings import Engines, Settings

CPU = DeviceKind.CPU


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(tmp_path)


def lay(settings: Settings, name: str, **marker: str) -> Path:
    folder = settings.data_dir / "engines" / name
    (folder / "bin").mkdir(parents=True)
    (folder / "lib").mkdir()
    for file in ("bin/python", "bin/vllm", "lib/libiomp5.so"):
        (folder / file).touch()
    (folder / MARKER).write_text(json.dumps(marker))
    return folder


def test_a_machine_without_engines_has_none_and_looking_makes_nothing(settings: Settings) -> None:
    assert find(settings, CPU) is None
    assert installed(settings) == ()
    assert last_error(settings, CPU) is None
    assert list(settings.data_dir.iterdir()) == []


def test_an_engine_comes_with_its_program_and_on_the_cpu_with_intels_openmp(
    settings: Settings,
) -> None:
    folder = lay(settings, "cpu-0.32.0", kind="cpu", version="0.32.0")
    env = find(settings, CPU)
    assert isinstance(env, EngineEnv)
    assert env.program == (str(folder / "bin/python"), str(folder / "bin/vllm"))
    assert env.preload == folder / "lib/libiomp5.so"
    lay(settings, "cuda-0.33.0", kind="cuda", version="0.33.0")
    on_gpu = find(settings, DeviceKind.CUDA)
    assert isinstance(on_gpu, EngineEnv)
    assert on_gpu.preload is None
    assert installed(settings) == (env, on_gpu)


def test_an_older_engine_that_a_deployment_is_pinned_to_is_found(settings: Settings) -> None:
    lay(settings, "cpu-0.30.0", kind="cpu", version="0.30.0")
    env = find(settings, CPU, "0.30.0")
    assert isinstance(env, EngineEnv)
    assert env.version == "0.30.0"
    assert find(settings, CPU) is None


@pytest.mark.parametrize("missing", [MARKER, "bin/python", "bin/vllm"])
def test_an_environment_that_lacks_a_part_is_none(settings: Settings, missing: str) -> None:
    (lay(settings, "cpu-0.32.0", kind="cpu", version="0.32.0") / missing).unlink()
    assert find(settings, CPU) is None


def test_an_install_in_progress_is_told_with_its_fraction(settings: Settings) -> None:
    job = install_job(DataDir(settings.data_dir), CPU, "0.32.0")
    with job.work() as report:
        report(Progress(0.25, "download", "Downloading packages"))
        found = find(settings, CPU)
    assert found == Installing(CPU, "0.32.0", 0.25, "download", "Downloading packages")
    assert find(settings, CPU) is None


def test_why_an_install_failed_is_told_until_the_next_one_begins(settings: Settings) -> None:
    job = install_job(DataDir(settings.data_dir), CPU, "0.32.0")
    with pytest.raises(Refused), job.work():
        raise Refused("disk_full", "The disk is full.", hint="Free some space.")
    told = last_error(settings, CPU)
    assert told is not None
    assert (told.message, told.hint) == ("The disk is full.", "Free some space.")
    with job.work() as report:
        report(Progress(0.0, "prepare", "Preparing"))
        assert last_error(settings, CPU) is None


def test_a_command_of_the_operators_own_needs_no_install(tmp_path: Path) -> None:
    settings = Settings(tmp_path, engines=Engines(command='podman run "an image" --'))
    env = find(settings, CPU)
    assert env == EngineEnv(CPU, "0.32.0", ("podman", "run", "an image", "--"))
    assert find(settings, DeviceKind.CUDA, "0.9") == EngineEnv(
        DeviceKind.CUDA, "0.9", ("podman", "run", "an image", "--")
    )


@pytest.mark.parametrize("command", ["'", '""unclosed"'])
def test_a_command_with_broken_quotes_is_named_as_a_wrong_setting(
    tmp_path: Path, command: str
) -> None:
    with pytest.raises(Invalid, match="SLIPSTREAM_ENGINE_COMMAND"):
        find(Settings(tmp_path, engines=Engines(command=command)), CPU)


def test_a_device_that_no_engine_runs_on_is_refused(settings: Settings) -> None:
    with pytest.raises(Invalid):
        find(settings, DeviceKind.ROCM)
