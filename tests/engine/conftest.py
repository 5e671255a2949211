"""A real engine and the demo pair, made once and kept between runs.

They lie in `.cache/engine-test` at the repository's root, or where SLIPSTREAM_TEST_ENGINE_DIR
says: a data directory like any other, with an engine and models and nothing else in it.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from controlplane.demo_models.make import make_demo_models
from controlplane.domain.tiers import DeviceKind
from controlplane.engine_envs import EngineEnv
from controlplane.engine_envs.install import install
from controlplane.errors import AppError
from controlplane.paths import DataDir
from controlplane.settings import Settings

_ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def engine_home() -> Path:
    """A data directory with the CPU engine in `engines/` and the demo pair in `models/demo/`."""
    named = os.environ.get("SLIPSTREAM_TEST_ENGINE_DIR")
    home = Path(named).absolute() if named else _ROOT / ".cache" / "engine-test"
    try:
        env = install(Settings(home), DeviceKind.CPU)
        make_demo_models(DataDir(home), env.python)
    except AppError as e:
        pytest.skip(f"No engine: {e.message} {e.hint}")
    return home


@pytest.fixture(scope="session")
def engine_env(engine_home: Path) -> EngineEnv:
    return install(Settings(engine_home), DeviceKind.CPU)
