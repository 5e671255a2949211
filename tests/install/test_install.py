"""`make up` before anything is installed: progress, and failures in one sentence."""

from __future__ import annotations

import importlib.util
import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """What `make up` needs of a clone, without any environment."""
    for name in ("Makefile", "pyproject.toml", "requirements.txt", "requirements-dev.txt"):
        shutil.copy(ROOT / name, tmp_path / name)
    for name in ("tools", "controlplane"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("*.pyc"))
    return tmp_path


@pytest.fixture
def tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("install", ROOT / "tools" / "install.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def make(clone: Path, target: str, **environ: str) -> subprocess.CompletedProcess[str]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("SLIPSTREAM_", "PIP_"))}
    return subprocess.run(
        ["make", f"PYTHON={sys.executable}", target],
        cwd=clone,
        env=kept | {"SLIPSTREAM_DATA_DIR": str(clone / "data"), **environ},
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )


def test_make_alone_explains_itself(clone: Path) -> None:
    said = make(clone, "help")
    assert said.returncode == 0
    for target in ("up", "test", "check", "bench"):
        assert f"make {target} " in said.stdout


def test_a_taken_port_stops_make_up_before_anything_is_downloaded(clone: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        said = make(
            clone,
            "up",
            SLIPSTREAM_PORT=str(port),
            SLIPSTREAM_ENGINE_COMMAND=sys.executable,
            SLIPSTREAM_TIERS_FILE="tiers.yaml",
        )
    assert said.returncode != 0
    assert f"Port {port} is taken by process {os.getpid()}" in said.stderr
    assert "Traceback" not in said.stderr
    assert not (clone / ".venv").exists()


def test_an_index_that_can_t_be_reached_is_one_sentence_and_a_hint(clone: Path) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        said = make(
            clone,
            "dev",
            PIP_CONFIG_FILE=os.devnull,
            PIP_INDEX_URL=f"http://127.0.0.1:{closed.getsockname()[1]}/simple",
            PIP_NO_CACHE_DIR="1",
            PIP_RETRIES="1",
        )
    assert said.returncode != 0
    assert "The package index can't be reached.\n  Check the network" in said.stderr
    assert "Traceback" not in said.stderr
    assert "Installing from requirements-dev.txt" in said.stdout


@pytest.mark.parametrize(
    ("line", "sentence", "status"),
    [
        ("OSError: [Errno 28] No space left on device", "The disk is full.", 4),
        (
            "ERROR: THESE PACKAGES DO NOT MATCH THE HASHES FROM THE REQUIREMENTS FILE.",
            "A downloaded package is not the one that was locked",
            4,
        ),
        ("ERROR: No matching distribution found for x==1", "The package index lacks a package", 4),
        ("ERROR: Could not find a version for x (from versions: none)", "can't be reached, or", 5),
        ("Temporary failure in name resolution", "The package index can't be reached.", 5),
        ("something else", "It went wrong.", 4),
    ],
)
def test_what_pip_says_becomes_a_sentence(
    tool: ModuleType,
    capsys: pytest.CaptureFixture[str],
    line: str,
    sentence: str,
    status: int,
) -> None:
    assert tool._explained([line], "It went wrong.") == status
    assert sentence in capsys.readouterr().err
