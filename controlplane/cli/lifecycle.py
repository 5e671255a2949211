"""`wait`, and the four words that start and stop: `pause`, `resume`, `sleep`, `wake`."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from controlplane.cli.names import Ref
from controlplane.cli.output import Form, Output, note, plain, say
from controlplane.domain.durations import parse_duration
from controlplane.domain.phases import Phase
from controlplane.errors import FieldError, Invalid

Wait = Annotated[bool, typer.Option("--wait", "-w", help="Stay until it is there.")]
Timeout = Annotated[
    str | None,
    typer.Option(help="As 20m. [default: it ends when nothing moved for 10 minutes]"),
]


_NOTED = {
    "pause": (Phase.PAUSED, "is to pause."),
    "resume": (Phase.READY, "is to run again."),
    "sleep": (Phase.ASLEEP, "is to sleep."),
    "wake": (Phase.READY, "wakes."),
}


def register(app: typer.Typer) -> None:
    app.command("wait")(wait)
    app.command("pause")(pause)
    app.command("resume")(resume)
    app.command("sleep")(sleep)
    app.command("wake")(wake)


def wait(
    name: Ref,
    for_: Annotated[Phase, typer.Option("--for", help="The phase.")] = Phase.READY,
    timeout: Timeout = None,
    output: Output = Form.TABLE,
) -> None:
    """Wait until it is ready, or in another phase. Ends with 6 when it can't come there."""
    watch(name, for_, timeout, output)


def pause(
    name: Ref, wait: Wait = False, timeout: Timeout = None, output: Output = Form.TABLE
) -> None:
    """Stop it; only resume starts it again."""
    _ask(name, "pause", Phase.PAUSED if wait else None, timeout, output)


def resume(
    name: Ref, wait: Wait = False, timeout: Timeout = None, output: Output = Form.TABLE
) -> None:
    """Let a paused one run again; try a failed one again now."""
    _ask(name, "resume", Phase.READY if wait else None, timeout, output)


def sleep(
    name: Ref, wait: Wait = False, timeout: Timeout = None, output: Output = Form.TABLE
) -> None:
    """Put it to sleep now; the next request wakes it."""
    _ask(name, "sleep", Phase.ASLEEP if wait else None, timeout, output)


def wake(
    name: Ref, wait: Wait = False, timeout: Timeout = None, output: Output = Form.TABLE
) -> None:
    """Wake it, as a request would."""
    _ask(name, "wake", Phase.READY if wait else None, timeout, output)


def _ask(name: str, word: str, target: Phase | None, timeout: str | None, output: Form) -> None:
    from controlplane.cli.client import Client, at
    from controlplane.cli.deployments import show_one

    limit = seconds(timeout)
    with Client() as client:
        told = client.post(at(name, word))
    if target is not None:
        watch(name, target, None, output, limit=limit)
    elif output is Form.TABLE:
        _say_noted(told, word)
    else:
        show_one(told, output)


def _say_noted(told: dict[str, Any], word: str) -> None:
    """What was asked for, and where to watch it: the phase that stands yet is the one before."""
    from controlplane.cli.waiting import status_of

    name, (there, answer) = plain(told.get("name")), _NOTED[word]
    if status_of(told).get("phase") == there:
        say(f"{name} is {there}.")
        return
    say(f"{name} {answer}")
    note(f"  Watch it: {watching(name, there)}")


def watching(name: str, phase: Phase) -> str:
    """The command that stays until `phase`."""
    return f"slipstream wait {name}" + ("" if phase is Phase.READY else f" --for {phase}")


def watch(
    name: str, target: Phase, timeout: str | None, output: Form, *, limit: float | None = None
) -> None:
    """Wait for `target`, showing the way there on stderr and the end on stdout."""
    from controlplane.cli import waiting
    from controlplane.cli.client import Client
    from controlplane.cli.deployments import show_one

    limit = seconds(timeout) if limit is None else limit
    # Whoever sets a limit has said how long is too long.
    stall = waiting.STALL if limit is None else max(limit, waiting.STALL)
    order = waiting.Wait(str(target), limit, stall)
    with Client() as client, waiting.Steps() as steps:
        found = waiting.wait_for(client, name, order, steps, every=waiting.LOOK_EVERY)
    if found is None:
        say(f"{plain(name)} is deleted.")
    else:
        show_one(found, output)


def seconds(text: str | None) -> float | None:
    """The seconds of a --timeout."""
    if text is None:
        return None
    try:
        return parse_duration(text).total_seconds()
    except ValueError as e:
        raise Invalid("usage", str(e), fields=(FieldError("--timeout", "form", str(e)),)) from e
