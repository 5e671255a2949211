"""Whatever a server, a network or a person does: a sentence and an exit code."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Answer, Cli, Server, deployment, problem


def _cut(handler: Any) -> None:
    """Ends the connection without an answer."""
    handler.connection.shutdown(socket.SHUT_RDWR)
    handler.close_connection = True


READERS = [
    ("ls",),
    ("get", "hello"),
    ("wait", "hello"),
    ("logs", "hello"),
    ("logs", "hello", "-f"),
    ("events", "hello"),
    ("export", "hello"),
    ("tiers",),
    ("keys", "ls"),
    ("pause", "hello"),
    ("delete", "hello", "--yes"),
    ("update", "hello", "--tier", "cpu"),
    ("deploy", "hello", "--model", "org/name"),
    ("check", "--model", "org/name"),
    ("chat", "hello", "Hello"),
]
GARBAGE = [
    b"",
    b"<html>hello</html>",
    b"\xff\xfe\x00",
    b"[]",
    b"null",
    b"7",
    b'{"items": 7}',
    b"{",
    b"[" * 100_000,
]


@pytest.mark.parametrize("words", READERS, ids=" ".join)
@pytest.mark.parametrize("garbage", GARBAGE, ids=lambda g: repr(g[:12]))
def test_an_answer_that_is_garbage_is_told_in_a_sentence(
    cli: Cli, scripted: Server, words: tuple[str, ...], garbage: bytes
) -> None:
    scripted.fallback = Answer(200, garbage, "text/html")
    ended = cli(*words)
    streams = words in {("chat", "hello", "Hello"), ("logs", "hello", "-f")}
    assert ended.code == 5 or (words[0] == "check" and garbage == b'{"items": 7}')
    assert ended.err or ended.out
    assert streams or len(ended.err) < 400


@pytest.mark.parametrize("words", READERS, ids=" ".join)
def test_a_server_that_fails_is_told_as_unreachable(
    cli: Cli, scripted: Server, words: tuple[str, ...]
) -> None:
    scripted.fallback = Answer(500, b"Internal Server Error", "text/plain")
    ended = cli(*words)
    assert ended.code == 5
    assert "not Slipstream" in ended.err


@pytest.mark.parametrize("words", [w for w in READERS if w[0] != "check"], ids=" ".join)
def test_where_nothing_listens_the_way_out_is_named(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        monkeypatch.setenv("SLIPSTREAM_PORT", str(s.getsockname()[1]))
        ended = cli(*words)
    assert ended.code == 5
    assert "No server answers at http://127.0.0.1:" in ended.err
    assert "slipstream up" in ended.err


def test_a_server_that_breaks_the_connection_is_told(cli: Cli, scripted: Server) -> None:
    scripted.says("GET", "/deployments", _cut)
    ended = cli("ls")
    assert ended.code == 5
    assert "broke" in ended.err
    assert len(scripted.asked) == 2, "a read is tried once more"


def test_a_change_without_a_key_against_doubling_is_not_sent_twice(
    cli: Cli, scripted: Server
) -> None:
    scripted.says("GET", "/deployments/hello", deployment())
    scripted.says("PATCH", "/deployments/hello", _cut)
    assert cli("update", "hello", "--tier", "cpu").code == 5
    assert [a.method for a in scripted.asked] == ["GET", "PATCH"]


@pytest.mark.parametrize(
    ("status", "code"),
    [(400, 2), (401, 4), (403, 4), (404, 3), (409, 4), (412, 4), (413, 2), (422, 2), (503, 5)],
)
def test_each_refusal_has_its_exit_code_and_says_the_servers_words(
    cli: Cli, scripted: Server, status: int, code: int
) -> None:
    fault = {"path": "scale_down.after", "code": "form", "detail": "A duration is such."}
    body = problem(status, "a_code", "It can't be.", "Do this.", errors=[fault])
    scripted.fallback = Answer(status, body, "application/problem+json")
    ended = cli("get", "hello")
    assert ended.code == code
    assert ended.out == ""
    assert ended.err.startswith("It can't be.\n  scale_down.after: A duration is such.\n")
    assert ("SLIPSTREAM_API_KEY" if status == 401 else "Do this.") in ended.err


def test_texts_of_a_server_do_nothing_to_the_terminal(cli: Cli, scripted: Server) -> None:
    evil = "a\x1b[31m\x1b]0;title\x07b\x9b2J\r\u202e[bold]c[/bold]"
    told = deployment(status={"message": evil, "reason": "[red]R[/red]"})
    scripted.says("GET", "/deployments/hello", told)
    ended = cli("get", "hello")
    assert ended.code == 0
    assert "[bold]c[/bold]" in ended.out
    assert "[red]R[/red]" in ended.out
    for form in ("table", "json", "yaml"):
        shown = cli("get", "hello", "-o", form).out
        assert not set(shown) & set("\x1b\x07\x9b\r\u202e"), form


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("SLIPSTREAM_URL", "ftp://x"),
        ("SLIPSTREAM_URL", "nonsense"),
        ("SLIPSTREAM_URL", "http://[::1"),
        ("SLIPSTREAM_URL", "http://x:99999999"),
        ("SLIPSTREAM_API_KEY", "a\nb"),
        ("SLIPSTREAM_API_KEY", "schlüssel"),
        ("SLIPSTREAM_PORT", "many"),
    ],
)
def test_a_wrong_setting_is_named(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv(name, value)
    ended = cli("ls")
    assert ended.code == 2
    assert name in ended.err


def test_the_key_of_this_machine_goes_to_this_machine_only(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from controlplane.cli.address import find

    monkeypatch.setenv("SLIPSTREAM_DATA_DIR", str(tmp_path))
    (tmp_path / "admin-key").write_text("sl_mine\n")
    assert find().key == "sl_mine"
    monkeypatch.setenv("SLIPSTREAM_URL", "http://localhost:1234/")
    assert (find().url, find().key) == ("http://localhost:1234", "sl_mine")
    monkeypatch.setenv("SLIPSTREAM_URL", "https://llm.example.org")
    assert find().key is None
    monkeypatch.setenv("SLIPSTREAM_API_KEY", "sl_theirs")
    assert find().key == "sl_theirs"
    assert "sl_theirs" not in repr(find())


@pytest.mark.parametrize(
    "words",
    [
        ("nonsense",),
        ("get",),
        ("deploy", "hello"),
        ("ls", "--phase", "purple"),
        ("get", "hello", "-o", "xml"),
        ("wait", "hello", "--timeout", "soon"),
        ("deploy", "hello", "--model", "o/n", "--scale-down", "sometimes"),
        ("deploy", "hello", "--model", "o/n", "--label", "word"),
        ("update", "hello"),
        ("chat", "hello"),
        ("chat", "hello", " "),
        ("get", ""),
        ("pause", " "),
        ("chat", "", "Hi"),
        ("cache", "rm", "no/such/model", "--yes"),
        ("cache", "rm", "org/name", "--revision", "../..", "--yes"),
        ("import", "--", "rm", "-rf"),
        ("keys", "create", "x", "--role", "king"),
    ],
    ids=" ".join,
)
def test_wrong_usage_ends_with_2_before_anything_is_asked(
    cli: Cli, scripted: Server, words: tuple[str, ...]
) -> None:
    ended = cli(*words)
    assert ended.code == 2
    assert ended.err
    assert scripted.asked == []


@pytest.mark.parametrize("ref", ["..", ".", "a/../b", "?", "#x", "%2e%2e", "a b", "x" * 5000])
def test_a_name_stays_in_its_place_of_the_path(cli: Cli, scripted: Server, ref: str) -> None:
    ended = cli("delete", ref, "--yes")
    assert ended.code in (3, 5)
    for asked in scripted.asked:
        assert asked.path.startswith("/api/v1/deployments/")
        assert asked.query == ""


def test_a_fault_of_ours_is_told_without_a_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from controlplane.cli import main

    def broken(_words: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(main, "make_app", broken)
    assert main.run(["ls"]) == 1
    err = capsys.readouterr().err
    assert "ZeroDivisionError" in err
    assert "Traceback" not in err
