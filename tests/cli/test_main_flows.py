"""The commands against the real API over a real database."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import httpx2
import pytest
import yaml

from controlplane.cli import main
from tests.cli.conftest import Answer, Cli, Server, problem

pytestmark = pytest.mark.system
MODEL = ("--model", "demo/smollm2-135m")
ODD = ["true", "on", "no", "0777", "1e3", "null", "7b-v0.1"]


def test_a_deployment_is_made_listed_shown_changed_and_deleted(
    real: Cli, live: httpx2.Client
) -> None:
    made = real("deploy", "hello", *MODEL, "--draft", "demo/smollm2-draft", "--label", "a=b")
    assert made.code == 0, made.err
    assert "● queued" in made.out
    assert "slipstream wait hello" in made.err
    told = live.get("/api/v1/deployments/hello").json()
    assert json.loads(real("get", "hello", "-o", "json").out) == told
    assert yaml.safe_load(real("get", "hello", "-o", "yaml").out) == told
    assert json.loads(real("ls", "-o", "json").out) == live.get("/api/v1/deployments").json()
    assert "demo/smollm2-draft" in real("ls", "--phase", "queued", "--label", "a=b").out
    assert "None like that" in real("ls", "--phase", "ready").err

    changed = real("update", "hello", "--scale-down", "timer:8h", "--tokens", "5", "-o", "json")
    spec = json.loads(changed.out)["spec"]
    assert spec["scale_down"] == {"policy": "timer", "after": "8h"}
    assert spec["speculation"]["tokens"] == 5
    assert spec["labels"] == {"a": "b"}
    same = real("update", "hello", "--tokens", "5")
    assert "Nothing is different" in same.err

    assert "created" in real("events", "hello").out
    assert real("logs", "hello").code == 0
    assert real("delete", "hello").code == 4, "nobody is here to be asked"
    assert real("delete", "hello", "--yes").code == 0
    assert live.get("/api/v1/deployments/hello").json()["desired"] == "deleted"


def test_what_the_server_refuses_changes_nothing(real: Cli, live: httpx2.Client) -> None:
    assert real("deploy", "hello", *MODEL).code == 0
    before = live.get("/api/v1/deployments").json()
    for code, *words in (
        (4, "deploy", "hello", *MODEL),
        (2, "deploy", "Hello!", *MODEL),
        (2, "deploy", "other", "--model", "../etc"),
        (2, "deploy", "other", *MODEL, "--tier", "gold"),
        (4, "deploy", "other", *MODEL, "--tier", "low-cost"),
        (2, "deploy", "other", *MODEL, "--scale-down", "idle:0s"),
        (2, "deploy", "other", *MODEL, "--tokens", "17"),
        (2, "deploy", "other", *MODEL, "--engine-arg", "host=0.0.0.0"),
        (2, "update", "hello", "--draft", "demo/smollm2-135m"),
        (3, "get", "nobody"),
        (3, "pause", "nobody"),
        (3, "delete", "nobody", "--yes"),
    ):
        ended = real(*words)
        assert ended.code == code, (words, ended)
        assert ended.err
    assert live.get("/api/v1/deployments").json() == before


def test_the_four_words_are_asked_for(real: Cli, live: httpx2.Client) -> None:
    real("deploy", "hello", *MODEL)
    assert real("pause", "hello").code == 0
    assert live.get("/api/v1/deployments/hello").json()["desired"] == "paused"
    assert real("resume", "hello").code == 0
    assert live.get("/api/v1/deployments/hello").json()["desired"] == "running"
    assert {real("sleep", "hello").code, real("wake", "hello").code} <= {0, 4}


@pytest.mark.parametrize("name", ODD)
def test_an_odd_name_comes_back_as_the_text_that_it_is(
    real: Cli, tmp_path: Path, name: str
) -> None:
    file = tmp_path / "spec.yaml"
    file.write_text(f"name: {name}\nmodel: demo/smollm2-135m\nlabels: {{odd: {name}}}\n")
    assert real("apply", "-f", str(file)).out == f"{name}: made\n"
    told = json.loads(real("get", name, "-o", "json").out)
    assert (told["name"], told["spec"]["labels"]) == (name, {"odd": name})
    exported = real("export", name)
    assert yaml.safe_load(exported.out)["name"] == name
    assert real("apply", "-f", "-", stdin=exported.out).out == f"{name}: unchanged\n"


def test_apply_shows_what_it_changes_and_a_dry_run_changes_nothing(
    real: Cli, live: httpx2.Client
) -> None:
    real("deploy", "hello", *MODEL, "--label", "old=1")
    before = live.get("/api/v1/deployments/hello").json()
    text = "name: hello\nmodel: demo/smollm2-135m\ncontext_length: 512\nlabels: {new: 2}\n"
    tried = real("apply", "-f", "-", "--dry-run", stdin=text)
    assert tried.out.splitlines() == [
        "hello: would be changed",
        "  context_length: nothing -> 512",
        '  labels.new: nothing -> "2"',
        '  labels.old: "1" -> nothing',
    ]
    assert live.get("/api/v1/deployments/hello").json() == before
    assert real("apply", "-f", "-", stdin=text).code == 0
    after = live.get("/api/v1/deployments/hello").json()["spec"]
    assert (after["context_length"], after["labels"]) == (512, {"new": "2"})


def test_one_wrong_document_leaves_all_others_alone(real: Cli, live: httpx2.Client) -> None:
    good = "name: good\nmodel: demo/smollm2-135m\n"
    for bad, code in (
        ("name: bad\nmodel: demo/smollm2-135m\ntier: gold\n", 2),
        ("name: bad\nmodel: demo/smollm2-135m\ntier: low-cost\n", 4),
        ("name: bad\nmodel: demo/smollm2-135m\nsurprise: 1\n", 2),
        ("- 1\n", 2),
        (good, 2),
    ):
        ended = real("apply", "-f", "-", stdin=f"{good}---\n{bad}")
        assert ended.code == code, (bad, ended)
        assert ended.err
    assert live.get("/api/v1/deployments").json()["items"] == []
    assert real("apply", "-f", "/no/such/file").code == 3


def test_keys_and_tiers(real: Cli) -> None:
    made = real("keys", "create", "ci", "--role", "viewer")
    assert made.out.startswith("sl_")
    assert len(made.out.split()) == 1
    row = next(
        r for r in json.loads(real("keys", "ls", "-o", "json").out)["items"] if r["name"] == "ci"
    )
    assert made.out.strip() not in real("keys", "ls").out
    assert real("keys", "revoke", row["id"]).code == 0
    assert "revoked" in real("keys", "ls").out
    assert real("keys", "revoke", "nobody").code in (3, 2)
    assert "cpu (default)" in real("tiers").out


def test_check_says_the_same_with_and_without_a_server(
    real: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    checked = real("check", *MODEL, "--draft", "demo/smollm2-draft")
    assert checked.code == 0
    assert "vllm serve '<weights of demo/smollm2-135m>'" in checked.out
    assert real("check", *MODEL, "--tier", "low-cost").code == 4
    assert real("check", *MODEL, "--tier", "gold").code == 2
    with_server = json.loads(real("check", *MODEL, "-o", "json").out)
    alone = json.loads(real("check", *MODEL, "--offline", "-o", "json").out)
    assert alone.keys() == with_server.keys()
    assert alone["command"].keys() == with_server["command"].keys()
    assert real("check", *MODEL, "--offline", "--tier", "gold").code == 2
    monkeypatch.setenv("SLIPSTREAM_URL", "http://127.0.0.1:9")
    assert "No server answers" in real("check", *MODEL).err


def test_names_are_completed_from_the_server(real: Cli) -> None:
    from controlplane.cli.names import deployment_names

    real("deploy", "hello", *MODEL)
    assert deployment_names("he") == ["hello"]
    assert deployment_names("x") == deployment_names("!!") == []


def stream(*chunks: object) -> Answer:
    lines = [f"data: {c if isinstance(c, str) else json.dumps(c)}\n\n" for c in chunks]
    return Answer(200, "".join(lines).encode(), "text/event-stream")


def word(text: str) -> dict[str, object]:
    return {"choices": [{"delta": {"content": text}}]}


def test_chat_prints_the_answer_as_it_comes(cli: Cli, scripted: Server) -> None:
    scripted.says(
        "POST", "/v1/chat/completions", stream(word("Hel"), word("lo\x1b[2J\n!"), "[DONE]")
    )
    ended = cli("chat", "hello", "Hi", "--system", "Be brief.", "--max-tokens", "5")
    assert (ended.code, ended.out) == (0, "Hello\n!\n")
    [asked] = scripted.asked
    assert asked.json["messages"] == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Hi"},
    ]
    assert asked.json["max_tokens"] == 5
    assert cli("chat", "hello", stdin="From a pipe").code == 0
    assert scripted.asked[-1].json["messages"][0]["content"] == "From a pipe"


def test_a_held_question_says_that_it_is_waking(
    cli: Cli, scripted: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    from controlplane.cli import chat
    from tests.cli.conftest import deployment

    monkeypatch.setattr(chat, "SOON", 0.01)
    told = threading.Event()
    answer = stream(word("Hello"), "[DONE]")

    def held(handler: object) -> None:
        assert told.wait(20)
        handler.send_response(200)  # type: ignore[attr-defined]
        handler.send_header("Content-Length", str(len(answer.bytes)))  # type: ignore[attr-defined]
        handler.end_headers()  # type: ignore[attr-defined]
        handler.wfile.write(answer.bytes)  # type: ignore[attr-defined]

    monkeypatch.setattr(chat, "note", lambda text: (main.note(text), told.set()))
    scripted.says("POST", "/v1/chat/completions", held)
    waking = deployment("waking", "yellow", status={"reason": "LoadingWeights"})
    scripted.says("GET", "/deployments/hello", waking)
    ended = cli("chat", "hello", "Hi")
    assert (ended.code, ended.out) == (0, "Hello\n")
    assert "waking: loading weights ..." in ended.err


def test_a_chat_that_ends_otherwise_says_so(cli: Cli, scripted: Server) -> None:
    error = {"error": {"message": "hello was paused.", "type": "x", "code": "deployment_paused"}}
    for answer, code in (
        (Answer(503, error), 4),
        (Answer(503, {"error": {"message": "It failed.", "code": "deployment_failed"}}), 4),
        (Answer(503, {"error": {"message": "Try again.", "code": "gateway_stopping"}}), 5),
        (Answer(404, {"error": {"message": "There is no model.", "code": "model_not_found"}}), 3),
        (Answer(401, problem(401, "bad_key", "No such key.")), 4),
        (stream(word("Hel")), 5),
        (stream(word("Hel"), error), 5),
        (stream("{"), 5),
    ):
        scripted.says("POST", "/v1/chat/completions", answer)
        ended = cli("chat", "hello", "Hi")
        assert ended.code == code, ended
        assert ended.err
