"""What a command says that comes next."""

from __future__ import annotations

import json
import shlex
import subprocess
from pathlib import Path

import pytest

from tests.cli.conftest import Cli, Server, deployment

DEPLOY = ("deploy", "hello", "--model", "demo/smollm2-135m")


def _curl(err: str) -> list[str]:
    """The words of the curl line, as a shell reads them."""
    text = err[err.index("curl") : err.index("A key for it")]
    said = subprocess.run(
        ["sh", "-c", f'curl() {{ printf "%s\\n" "$@"; }}; {text}'],
        capture_output=True,
        check=True,
        text=True,
        timeout=20,
    )
    return said.stdout.splitlines()


def test_the_curl_line_works_as_pasted_with_the_key_of_this_machine(
    cli: Cli, scripted: Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    data = tmp_path / "my data"
    data.mkdir()
    (data / "admin-key").write_text("sl_mine\n")
    monkeypatch.setenv("SLIPSTREAM_DATA_DIR", str(data))
    monkeypatch.delenv("SLIPSTREAM_API_KEY")
    scripted.says("POST", "/deployments", deployment())
    err = cli(*DEPLOY).err
    words = _curl(err)
    assert "sl_mine" not in err
    assert f"$(cat {shlex.quote(str(data / 'admin-key'))})" in err
    assert "Authorization: Bearer sl_mine" in words
    assert json.loads(words[-1])["max_tokens"] == 60


def test_the_curl_line_names_the_variable_that_the_key_came_from(
    cli: Cli, scripted: Server
) -> None:
    scripted.says("POST", "/deployments", deployment())
    assert "Authorization: Bearer sl_a_key" in _curl(cli(*DEPLOY).err)
