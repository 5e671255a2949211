"""`check` shows the command that would run, and says what it did not look at."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import Cli

PAIR = ("check", "--offline", "--model", "demo/smollm2-135m", "--draft", "demo/smollm2-draft")
FLAG = '"use_heterogeneous_vocab":true'
MAY = "The draft's folder may add use_heterogeneous_vocab."


def test_the_drafts_own_folder_has_its_word_in_the_command(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("SLIPSTREAM_DATA_DIR", str(tmp_path))
    folder = tmp_path / "models" / "demo" / "smollm2-draft"
    folder.mkdir(parents=True)
    plain = cli(*PAIR)
    assert (plain.code, FLAG in plain.out, MAY in plain.out) == (0, False, False)
    (folder / "slipstream.json").write_text('{"vocabulary": "heterogeneous"}')
    says = cli(*PAIR)
    assert (says.code, FLAG in says.out, MAY in says.out) == (0, True, False)


def test_a_draft_that_is_not_here_may_say_more(cli: Cli) -> None:
    ended = cli(*PAIR)
    assert ended.code == 0
    assert FLAG not in ended.out
    assert MAY in ended.out
    assert "Nothing stands in its way." in ended.out
    assert MAY not in cli(*PAIR, "--vocabulary", "heterogeneous").out


def test_a_model_of_the_hub_was_not_looked_up(cli: Cli) -> None:
    told = "The hub was not asked about org/name."
    ended = cli("check", "--offline", "--model", "org/name")
    assert (ended.code, told in ended.out) == (0, True)
    assert "The hub" not in cli(*PAIR).out
