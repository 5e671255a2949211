"""Installing an engine: the real uv, a real environment, and tiny wheels in vLLM's place."""

import subprocess
import sys
import threading
from pathlib import Path

import pytest

from controlplane.domain.tiers import DeviceKind
from controlplane.engine_envs import EngineEnv, find, installed, last_error
from controlplane.engine_envs.environments import MARKER
from controlplane.engine_envs.install import install
from controlplane.engine_envs.plugin_files import MODULE, site_packages
from controlplane.errors import AppError, Invalid
from controlplane.long_jobs import Progress
from controlplane.settings import Settings
from tests.engine_envs.wheels import make_wheels

CPU = DeviceKind.CPU


@pytest.fixture(scope="module")
def uv_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache of these tests' own: their wheels must not be found by anybody else."""
    return tmp_path_factory.mktemp("uv-cache")


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(tmp_path / "data")


@pytest.fixture
def wheels(tmp_path: Path, uv_cache: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of wheels that pip is set up for, and no index."""
    folder = tmp_path / "wheels"
    make_wheels(folder)
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    monkeypatch.setenv("UV_OFFLINE", "1")
    monkeypatch.setenv("UV_CACHE_DIR", str(uv_cache))
    monkeypatch.setenv("UV_NO_VERIFY_HASHES", "1")  # the locks hold the real packages' hashes
    return folder


@pytest.mark.usefixtures("wheels")
def test_an_engine_is_installed_once_and_later_only_its_plugin_is_brought_up_to_date(
    settings: Settings,
) -> None:
    steps: list[Progress] = []
    env = install(settings, CPU, None, steps.append)
    assert find(settings, CPU) == find(settings, CPU, "0.32.0") == env
    assert installed(settings) == (env,)
    assert (env.kind, env.version) == (CPU, "0.32.0")
    said = subprocess.run([*env.program], capture_output=True, text=True, check=True)
    assert said.stdout == "vllm\n"
    fractions = [s.fraction for s in steps]
    assert fractions == sorted(fractions)
    assert fractions[-1] == 1.0
    # It lives on when the control plane's own environment is made anew.
    assert env.path is not None
    assert sys.prefix not in (env.path / "pyvenv.cfg").read_text()

    plugin = site_packages(env.path) / f"{MODULE}.py"
    ours = plugin.read_text()
    plugin.write_text("one of an older version")
    steps.clear()
    assert install(settings, CPU, None, steps.append) == env
    assert plugin.read_text() == ours
    assert steps == []


@pytest.mark.usefixtures("wheels")
def test_two_installers_at_once_clear_what_a_dead_one_left_and_make_one_environment(
    settings: Settings,
) -> None:
    engines = settings.data_dir / "engines"
    for leftover in (".new-cpu-0.32.0", "cpu-0.32.0"):
        (engines / leftover / "bin").mkdir(parents=True)
        (engines / leftover / "bin" / "vllm").write_text("half")
    assert find(settings, CPU) is None
    made: list[EngineEnv] = []
    done: list[str] = []

    def work() -> None:
        def on_progress(step: Progress) -> None:
            if step.step == "done":
                done.append(threading.current_thread().name)

        made.append(install(settings, CPU, None, on_progress))

    threads = [threading.Thread(target=work) for _ in range(2)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(120)
    assert len(made) == 2
    assert made[0] == made[1]
    assert len(done) == 1
    assert find(settings, CPU) == made[0]
    assert not (engines / ".new-cpu-0.32.0").exists()


def test_an_engine_that_can_not_be_imported_is_not_kept(settings: Settings, wheels: Path) -> None:
    make_wheels(wheels, vllm="raise ImportError('libsomething.so.1 is not there')\n")
    with pytest.raises(AppError) as refused:
        install(settings, CPU)
    assert refused.value.code == "engine_broken"
    assert "libsomething.so.1" in refused.value.message
    assert find(settings, CPU) is None
    assert not list((settings.data_dir / "engines").rglob(MARKER))


@pytest.mark.usefixtures("wheels")
def test_a_package_that_is_not_the_locked_one_is_refused(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("UV_NO_VERIFY_HASHES")
    with pytest.raises(AppError) as refused:
        install(settings, CPU)
    assert refused.value.code == "hash_mismatch"


def test_an_index_that_can_not_be_reached_is_one_sentence_and_a_hint_and_leaves_nothing(
    settings: Settings, uv_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_FIND_LINKS", str(uv_cache))
    monkeypatch.setenv("UV_DEFAULT_INDEX", "http://127.0.0.1:9/simple")  # nobody listens there
    monkeypatch.setenv("UV_HTTP_RETRIES", "0")
    monkeypatch.setenv("UV_CACHE_DIR", str(uv_cache / "empty"))
    with pytest.raises(AppError) as refused:
        install(settings, CPU)
    assert refused.value.code == "index_unreachable"
    assert refused.value.hint
    told = last_error(settings, CPU)
    assert told is not None
    assert told.message == refused.value.message
    assert find(settings, CPU) is None
    left = sorted(f.name for f in (settings.data_dir / "engines").iterdir())
    assert left == ["cpu-0.32.0.json", "cpu-0.32.0.lock"]


def test_a_version_that_we_do_not_support_is_refused_before_anything_happens(
    settings: Settings,
) -> None:
    with pytest.raises(Invalid, match="No supported engine"):
        install(settings, CPU, "0.1.0")
    assert not settings.data_dir.exists()
