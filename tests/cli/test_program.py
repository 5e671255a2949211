"""The program as a process: its commands, its help, its pipes and what it loads."""

from __future__ import annotations

import subprocess
import sys

import pytest
from typer.main import get_command

from controlplane.cli.main import EXIT, MODULES, make_app
from controlplane.errors import Kind
from tests.cli.conftest import Cli, Server, deployment

RUN = [sys.executable, "-m", "controlplane.cli"]


def test_every_module_brings_the_commands_that_it_is_said_to() -> None:
    for words in MODULES.values():
        app = get_command(make_app([words[0]]))
        assert set(app.commands) == set(words)  # type: ignore[attr-defined]
    everything = get_command(make_app())
    assert set(everything.commands) == {w for words in MODULES.values() for w in words}  # type: ignore[attr-defined]


def test_every_kind_of_error_has_an_exit_code() -> None:
    assert set(EXIT) == set(Kind)
    assert set(EXIT.values()) == {2, 3, 4, 5}


@pytest.mark.parametrize("word", [w for words in MODULES.values() for w in words])
def test_every_command_has_help(cli: Cli, word: str) -> None:
    ended = cli(word, "--help")
    assert ended.code == 0
    assert "Usage: slipstream" in ended.out


def test_version_help_and_nothing(cli: Cli) -> None:
    assert cli("--version").out.startswith("slipstream ")
    assert "deploy" in cli("--help").out
    nothing = cli()
    assert nothing.code in (0, 2)
    assert "Commands:" in nothing.out + nothing.err


def test_the_common_path_loads_no_server_library() -> None:
    heavy = "sqlalchemy celery fastapi starlette huggingface_hub aiohttp psycopg"
    code = (
        "import sys; from controlplane.cli import main; main.run(['ls']);"
        f"print(sorted(set('{heavy}'.split()) & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.strip() == "[]"


def test_a_reader_that_goes_away_is_no_fault(scripted: Server) -> None:
    scripted.says("GET", "/deployments", {"items": [deployment()] * 3000, "next_cursor": None})
    with subprocess.Popen(
        [*RUN, "ls", "-o", "json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.read(10)
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(30) == 0


def test_a_program_that_fails_ends_with_its_code_and_nothing_on_stdout() -> None:
    done = subprocess.run(
        [*RUN, "get", "x y", "-o", "toml"], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert "Traceback" not in done.stderr
