"""`slipstream engines` and `demo-models`, where nothing is installed, and without a network."""

import json
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from controlplane.cli.main import make_app
from controlplane.domain.tiers import DeviceKind
from controlplane.engine_envs.environments import install_job
from controlplane.errors import AppError, Invalid, Refused
from controlplane.paths import DataDir


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> DataDir:
    monkeypatch.setenv("SLIPSTREAM_DATA_DIR", str(tmp_path))
    monkeypatch.delenv("SLIPSTREAM_ENGINE_COMMAND", raising=False)
    return DataDir(tmp_path)


def run(*words: str) -> str:
    """What the command prints; its AppError is raised as the program's edge would meet it."""
    result = CliRunner().invoke(make_app(words), list(words))
    if result.exception is not None:
        raise result.exception
    return result.stdout


@pytest.mark.usefixtures("data")
def test_engines_are_listed_as_a_table_json_or_yaml() -> None:
    assert "not installed" in run("engines")
    items = json.loads(run("engines", "list", "-o", "json"))["items"]
    assert [(i["kind"], i["version"], i["state"]) for i in items] == [
        ("cpu", "0.32.0", "not installed"),
        ("cuda", "0.33.0", "not installed"),
    ]
    assert yaml.safe_load(run("engines", "-o", "yaml"))["items"] == items


def test_why_an_install_failed_is_in_the_list(data: DataDir) -> None:
    with pytest.raises(Refused), install_job(data, DeviceKind.CPU, "0.32.0").work():
        raise Refused("disk_full", "The disk is full.", hint="Free some space.")
    assert "failed: The disk is full. Free some space." in run("engines")


@pytest.mark.usefixtures("data")
def test_a_command_of_the_operators_own_is_listed_as_such(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLIPSTREAM_ENGINE_COMMAND", "/opt/vllm --flag")
    (item,) = json.loads(run("engines", "-o", "json"))["items"]
    assert item["program"] == "/opt/vllm --flag"


def test_what_can_not_be_done_is_refused_with_the_way_out(data: DataDir) -> None:
    with pytest.raises(Invalid, match="No supported engine"):
        run("engines", "install", "cpu", "--version", "9.9.9")
    with pytest.raises(AppError, match="No engine is installed") as missing:
        run("engines", "check")
    assert "engines install" in missing.value.hint
    with pytest.raises(Refused, match="needs an installed engine"):
        run("demo-models")
    assert list(data.root.iterdir()) == []
