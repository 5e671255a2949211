"""What people and servers write: texts that are none, and tables that fit."""

from __future__ import annotations

import pytest

from tests.cli.conftest import Cli, Server, deployment

NO_TEXT = "caf\udce9"


@pytest.mark.parametrize(
    "words",
    [
        ("chat", "hello", NO_TEXT),
        ("chat", "hello", "Hi", "--system", NO_TEXT),
        ("get", NO_TEXT),
        ("keys", "create", NO_TEXT),
        ("apply", "-f", NO_TEXT),
        ("models", "add", "mine", "--path", NO_TEXT),
        ("deploy", "hello", "--model", NO_TEXT),
        (NO_TEXT,),
    ],
    ids=ascii,
)
def test_bytes_that_are_no_text_are_wrong_usage(
    cli: Cli, scripted: Server, words: tuple[str, ...]
) -> None:
    ended = cli(*words)
    assert (ended.code, scripted.asked) == (2, [])
    assert ended.err.startswith("The text is no UTF-8.")


def test_a_question_from_stdin_that_is_no_text_is_wrong_usage(cli: Cli, scripted: Server) -> None:
    ended = cli("chat", "hello", stdin=b"caf\xe9")
    assert (ended.code, scripted.asked) == (2, [])
    assert ended.err.startswith("The text is no UTF-8.")


@pytest.mark.parametrize("form", ["table", "json", "yaml"])
def test_half_a_character_from_a_server_is_no_fault_of_ours(
    cli: Cli, scripted: Server, form: str
) -> None:
    told = deployment(status={"message": "half \ud83d of one"})
    scripted.says("GET", "/deployments/hello", told)
    ended = cli("get", "hello", "-o", form)
    assert ended.code == 0
    ended.out.encode()
