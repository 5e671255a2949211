"""`chat`: one question, the answer as it comes."""

from __future__ import annotations

import contextlib
import json
import sys
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from controlplane.cli.names import Ref
from controlplane.cli.output import console, note, plain, plain_lines
from controlplane.errors import AppError, Invalid, Unavailable

if TYPE_CHECKING:
    from controlplane.cli.client import Client

SOON = 1.0  # seconds; an engine that is awake answers sooner
_LOOK_EVERY = 1.0


def register(app: typer.Typer) -> None:
    app.command("chat")(chat)


def chat(
    name: Ref,
    text: Annotated[str | None, typer.Argument(help="The question. [default: stdin]")] = None,
    system: Annotated[str | None, typer.Option(help="What it is to be.")] = None,
    max_tokens: Annotated[int | None, typer.Option(help="The answer's longest.", min=1)] = None,
    temperature: Annotated[float | None, typer.Option(min=0.0, max=2.0)] = None,
) -> None:
    """Ask a deployment something, and print its answer as it comes. A sleeper wakes first."""
    from controlplane.cli.client import Client

    if not name.strip():
        raise Invalid("usage", "A name is missing.")
    question = text if text is not None else _from_stdin()
    if not question.strip():
        raise Invalid("usage", "There is no question.", hint='As: slipstream chat NAME "Hello"')
    messages = [{"role": "system", "content": system}] if system else []
    body: dict[str, Any] = {
        "model": name,
        "messages": [*messages, {"role": "user", "content": question}],
        "stream": True,
    }
    for key, value in (("max_tokens", max_tokens), ("temperature", temperature)):
        if value is not None:
            body[key] = value
    with Client() as client, _Held(name) as held:
        path = "/v1/chat/completions"
        with client.stream("POST", path, body=body, quiet=None) as events:
            for piece in _pieces(events):
                held.over()
                sys.stdout.write(plain_lines(piece))
                sys.stdout.flush()
    sys.stdout.write("\n")


def _from_stdin() -> str:
    if sys.stdin.isatty():
        raise Invalid("usage", "There is no question.", hint='As: slipstream chat NAME "Hello"')
    try:
        return sys.stdin.buffer.read().decode("utf-8")
    except UnicodeDecodeError as e:
        raise Invalid("usage", "The text is no UTF-8.", hint="stdin holds other bytes.") from e


def _pieces(events: Iterator[tuple[str, str]]) -> Iterator[str]:
    """The answer's text. Raises AppError when it breaks off."""
    for _, data in events:
        if data == "[DONE]":
            return
        try:
            chunk = json.loads(data)
        except ValueError:
            chunk = None
        if not isinstance(chunk, dict):
            raise _broken("The answer holds what is no JSON.")
        if isinstance(error := chunk.get("error"), dict):
            raise _broken(plain(error.get("message")) or "The engine met an error.")
        yield from _texts(chunk)
    raise _broken("The answer broke off.")


def _texts(chunk: dict[str, Any]) -> Iterator[str]:
    choices = chunk.get("choices")
    for choice in choices if isinstance(choices, list) else ():
        delta = choice.get("delta") if isinstance(choice, dict) else None
        content = delta.get("content") if isinstance(delta, dict) else None
        if isinstance(content, str) and content:
            yield content


def _broken(message: str) -> Unavailable:
    return Unavailable("answer_broken", message, hint="What came so far is above. Ask again.")


class _Held:
    """While no answer comes: says on stderr what the deployment does meanwhile."""

    def __init__(self, name: str) -> None:
        self._name, self._over = name, threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> _Held:
        self._thread.start()
        return self

    def over(self) -> None:
        """The answer comes. Once this returns, nothing more is said."""
        if not self._over.is_set():
            self._over.set()
            self._thread.join(SOON)

    def __exit__(self, *_: object) -> None:
        self.over()

    def _watch(self) -> None:
        from controlplane.cli.client import Client

        if self._over.wait(SOON):
            return
        with contextlib.suppress(AppError), Client(read=5.0) as client:
            if sys.stderr.isatty():
                with console(stderr=True).status("") as status:
                    self._tell(client, status.update)
            else:
                self._tell(client, note)

    def _tell(self, client: Client, say: Any) -> None:
        from controlplane.cli.client import at
        from controlplane.cli.waiting import how_far, status_of, step_of

        said = ""
        while not self._over.is_set():
            found = client.get(at(self._name))
            phase = plain(status_of(found).get("phase"))
            step = step_of(found)
            line = "" if phase == "ready" else f"{phase} ..."
            if line and step != phase:
                line = f"{phase}: {step}{how_far(found)} ..."
            if line and line != said:
                say(line)
            said = line or said
            self._over.wait(_LOOK_EVERY)
