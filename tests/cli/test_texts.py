"""What people and servers write: texts that are none, and tables that fit."""

from __future__ import annotations

import io

import pytest

from controlplane.cli import keys, views
from tests.cli.conftest import Answer, Cli, Server, deployment

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


LONG = "a-name-of-the-forty-characters-allowed-x"


def _narrow(table: object) -> list[str]:
    from rich.console import Console

    console = Console(width=80, file=io.StringIO(), markup=False)
    with console.capture() as got:
        console.print(table)
    return got.get().splitlines()


def test_a_narrow_terminal_cuts_models_and_never_a_name_or_a_reason() -> None:
    one = deployment("starting", "yellow", status={"reason": "DownloadingWeights"})
    one["name"] = "support-assistant-1"
    one["spec"] |= {"model": "nm-testing/Qwen2-VL-72B-Instruct-FP8-dynamic", "draft_model": LONG}
    head, row = _narrow(views.listing([one]))
    assert head.startswith("NAME")
    assert row.startswith("support-assistant-1")
    assert "\u25cf starting" in row
    assert "DownloadingWeights" in row
    assert "nm-testing/Qwen2-VL-72B" not in row


def test_a_pipe_gets_every_value_whole_and_one_line_a_row(cli: Cli, scripted: Server) -> None:
    one = deployment()
    one["spec"] |= {"model": "m" * 128, "draft_model": "d" * 128}
    scripted.says("GET", "/deployments", {"items": [one, one], "next_cursor": None})
    lines = cli("ls").out.splitlines()
    assert len(lines) == 3
    assert "m" * 128 in lines[1]
    assert "d" * 128 in lines[2]


def _key(key_id: str, name: str, revoked_at: str | None = None) -> dict[str, object]:
    return {"id": key_id, "name": name, "role": "viewer", "revoked_at": revoked_at}


def test_a_key_is_revoked_by_its_id_or_its_only_name(cli: Cli, scripted: Server) -> None:
    rows = [
        _key("key_1", "ci"),
        _key("key_2", "ci", "2026-12-01T03:00:00Z"),
        _key("key_3", "twice"),
        _key("key_4", "twice"),
    ]
    scripted.says("GET", "/keys", {"items": rows, "next_cursor": None})
    scripted.fallback = Answer(204, b"")
    for words, code, gone in (
        ("key_3", 0, ["/api/v1/keys/key_3"]),
        ("ci", 0, ["/api/v1/keys/key_1"]),
        ("twice", 4, []),
        ("nobody", 3, []),
    ):
        scripted.asked.clear()
        assert cli("keys", "revoke", words).code == code
        assert [a.path for a in scripted.asked if a.method == "DELETE"] == gone


def test_a_table_of_keys_keeps_its_ids_and_names() -> None:
    key = {"created_at": "2026-12-01T03:00:00Z", "prefix": "sl_abcdefgh", "expires_at": None}
    key |= _key("key_01JD0000000000000000000000", "the pipeline of the team")
    row = _narrow(keys._table([key]))[1]
    assert "key_01JD0000000000000000000000  the pipeline of the team" in row
