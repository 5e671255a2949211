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


@pytest.mark.parametrize(
    ("word", "before", "out", "watch"),
    [
        ("pause", "ready", "hello is to pause.", "slipstream wait hello --for paused"),
        ("resume", "paused", "hello is to run again.", "slipstream wait hello"),
        ("sleep", "ready", "hello is to sleep.", "slipstream wait hello --for asleep"),
        ("wake", "asleep", "hello wakes.", "slipstream wait hello"),
    ],
)
def test_a_word_is_answered_by_what_happens_next_and_not_by_the_phase_before(
    cli: Cli, scripted: Server, word: str, before: str, out: str, watch: str
) -> None:
    stale = {"reason": "Stale", "hint": "Start it again: slipstream resume NAME."}
    scripted.says("POST", f"/deployments/hello/{word}", deployment(before, status=stale))
    ended = cli(word, "hello")
    assert (ended.out, ended.err) == (f"{out}\n", f"  Watch it: {watch}\n")
    told = json.loads(cli(word, "hello", "-o", "json").out)
    assert told["status"]["phase"] == before


def test_a_word_that_changes_nothing_says_how_it_stands(cli: Cli, scripted: Server) -> None:
    scripted.says("POST", "/deployments/hello/wake", deployment("ready"))
    assert cli("wake", "hello").out == "hello is ready.\n"


def test_a_change_is_answered_by_its_generation_and_what_it_changes(
    cli: Cli, scripted: Server
) -> None:
    before, made = deployment(), deployment(generation=2)
    made["spec"]["scale_down"] = {"policy": "never", "after": None}
    scripted.says("GET", "/deployments/hello", before)
    scripted.says("PATCH", "/deployments/hello", made)
    ended = cli("update", "hello", "--scale-down", "never")
    assert ended.out == "hello: generation 2 changes scale_down.\n"
    assert ended.err == "  Watch it: slipstream wait hello\n"


def test_a_hint_about_any_deployment_names_this_one(cli: Cli, scripted: Server) -> None:
    hint = {"hint": "Start it again: slipstream resume NAME."}
    scripted.says("GET", "/deployments/hello", deployment("paused", status=hint))
    shown = cli("get", "hello").out
    assert "slipstream resume hello." in shown
    assert "NAME" not in shown
