"""`deploy`, `ls`, `get`, `update` and `delete`."""

from __future__ import annotations

import shlex
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from controlplane.cli import views
from controlplane.cli.names import Ref
from controlplane.cli.output import Form, Output, note, plain, say, show
from controlplane.cli.spec_options import (
    ContextLength,
    Draft,
    EngineArg,
    EngineVersion,
    Label,
    MethodName,
    Model,
    ModelChange,
    Replicas,
    Revision,
    ScaleDown,
    Tier,
    Tokens,
    Vocabulary,
    WakeDeadline,
    WakeMode,
    spec_json,
)
from controlplane.cli.waiting import status_of
from controlplane.domain.phases import Phase
from controlplane.errors import Invalid, Refused

if TYPE_CHECKING:
    from controlplane.cli.address import Address

Wait = Annotated[bool, typer.Option("--wait", "-w", help="Stay until it is ready.")]
Timeout = Annotated[
    str | None,
    typer.Option(help="Of --wait, as 20m. [default: it ends when nothing moved for 10 minutes]"),
]


def register(app: typer.Typer) -> None:
    app.command("deploy")(deploy)
    app.command("ls")(ls)
    app.command("get")(get)
    app.command("update")(update)
    app.command("delete")(delete)


def deploy(
    name: Annotated[str, typer.Argument(help="2-40 of a-z 0-9 . _ -")],
    model: Model,
    tier: Tier = None,
    draft: Draft = None,
    tokens: Tokens = None,
    method: MethodName = None,
    vocabulary: Vocabulary = None,
    context_length: ContextLength = None,
    scale_down: ScaleDown = None,
    revision: Revision = None,
    replicas: Replicas = None,
    label: Label = None,
    wake_mode: WakeMode = None,
    wake_deadline: WakeDeadline = None,
    engine_version: EngineVersion = None,
    engine_arg: EngineArg = None,
    wait: Wait = False,
    timeout: Timeout = None,
    output: Output = Form.TABLE,
) -> None:
    """Deploy a model, with a draft that runs ahead of it."""
    from controlplane.cli.client import Client
    from controlplane.cli.lifecycle import seconds, watch

    limit = seconds(timeout)
    spec = spec_json(
        model=model, tier=tier, draft=draft, tokens=tokens, method=method, vocabulary=vocabulary,
        context_length=context_length, scale_down=scale_down, revision=revision,
        replicas=replicas, label=label, wake_mode=wake_mode, wake_deadline=wake_deadline,
        engine_version=engine_version, engine_arg=engine_arg,
    )  # fmt: skip
    with Client() as client:
        made = client.post("/deployments", {"name": name, **spec})
        if wait:
            note(f"{plain(name)} is accepted.")
            watch(name, Phase.READY, None, output, limit=limit)
        else:
            show_one(made, output)
        if output is Form.TABLE:
            note(next_steps(name, client.address, waited=wait))


def ls(
    phase: Annotated[list[Phase] | None, typer.Option(help="Only these; repeatable.")] = None,
    tier: Annotated[str | None, typer.Option(help="Only of this tier.")] = None,
    model: Annotated[str | None, typer.Option(help="Only of this model.")] = None,
    name: Annotated[str | None, typer.Option(help="Only names that begin so.")] = None,
    label: Annotated[
        list[str] | None, typer.Option("--label", "-l", help="key or key=value; repeatable.")
    ] = None,
    output: Output = Form.TABLE,
) -> None:
    """List the deployments, newest first."""
    from controlplane.cli.client import Client

    with Client() as client:
        rows = list(
            client.pages(
                "/deployments",
                phase=[str(p) for p in phase or ()],
                tier=tier,
                model=model,
                name=name,
                label=label or [],
            )
        )
    if not rows and output is Form.TABLE:
        narrowed = any((phase, tier, model, name, label))
        note("None like that." if narrowed else "No deployments yet. See: slipstream deploy --help")
        return
    show({"items": rows, "next_cursor": None}, output, lambda: views.listing(rows))


def get(name: Ref, output: Output = Form.TABLE) -> None:
    """Show one deployment."""
    from controlplane.cli.client import Client, at

    with Client() as client:
        show_one(client.get(at(name)), output, full=True)


def update(
    name: Ref,
    model: ModelChange = None,
    tier: Tier = None,
    draft: Draft = None,
    tokens: Tokens = None,
    method: MethodName = None,
    vocabulary: Vocabulary = None,
    context_length: ContextLength = None,
    scale_down: ScaleDown = None,
    revision: Revision = None,
    replicas: Replicas = None,
    label: Label = None,
    wake_mode: WakeMode = None,
    wake_deadline: WakeDeadline = None,
    engine_version: EngineVersion = None,
    engine_arg: EngineArg = None,
    wait: Wait = False,
    timeout: Timeout = None,
    output: Output = Form.TABLE,
) -> None:
    """Change a deployment. What isn't named stays."""
    from controlplane.cli.client import Client, at
    from controlplane.cli.lifecycle import seconds, watch

    limit = seconds(timeout)
    changes = spec_json(
        model=model, tier=tier, draft=draft, tokens=tokens, method=method, vocabulary=vocabulary,
        context_length=context_length, scale_down=scale_down, revision=revision,
        replicas=replicas, label=label, wake_mode=wake_mode, wake_deadline=wake_deadline,
        engine_version=engine_version, engine_arg=engine_arg,
    )  # fmt: skip
    if not changes:
        raise Invalid("usage", "Nothing to change was named.", hint="See slipstream update --help.")
    with Client() as client:
        before = client.get(at(name))
        generation = before.get("generation")
        made = client.patch(at(name), changes, generation=generation or 0)
    if made.get("generation") == generation:
        note("Nothing is different: its engines stay as they are.")
    if wait:
        watch(name, Phase.READY, None, output, limit=limit)
    elif output is Form.TABLE:
        _say_changed(before, made)
    else:
        show_one(made, output)


def _say_changed(before: dict[str, Any], made: dict[str, Any]) -> None:
    """What the new generation changes, and where to watch it: its status is still the old one's."""
    from controlplane.cli.apply import changes
    from controlplane.cli.lifecycle import watching

    status_of(made)  # what is no deployment says nothing about a change
    name, generation = plain(made.get("name")), made.get("generation")
    if generation == before.get("generation"):
        return
    changed = changes(views.part(before, "spec"), views.part(made, "spec"))
    say(f"{name}: generation {plain(generation)} changes {', '.join(map(plain, changed))}.")
    if made.get("desired") == "running":
        note(f"  Watch it: {watching(name, Phase.READY)}")


def delete(
    name: Ref,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Don't ask.")] = False,
    wait: Annotated[bool, typer.Option("--wait", "-w", help="Stay until it is gone.")] = False,
    timeout: Timeout = None,
    output: Output = Form.TABLE,
) -> None:
    """Delete a deployment. Requests in flight finish; downloaded weights stay."""
    from controlplane.cli.client import Client, at
    from controlplane.cli.lifecycle import seconds, watch

    limit = seconds(timeout)
    with Client() as client:
        if not yes:
            _ask_by_name(str(client.get(at(name)).get("name")))
        told = client.delete(at(name))
    status_of(told)  # what is no deployment says nothing about a deletion
    if wait:
        watch(f"{told.get('id') or name}", Phase.DELETED, None, output, limit=limit)
    elif output is Form.TABLE:
        say(f"{plain(told.get('name') or name)} is being deleted.")
    else:
        show_one(told, output)


def _ask_by_name(name: str) -> None:
    """A person types the name; a program says --yes."""
    if not sys.stdin.isatty():
        raise Refused(
            "not_confirmed", f"Nobody is here to ask about {plain(name)}.", hint="Add --yes."
        )
    typed = typer.prompt(f"Type its name to delete {plain(name)}", default="", show_default=False)
    if typed.strip() != name:
        raise Refused("not_confirmed", "That is another name: nothing was deleted.")


def show_one(deployment: dict[str, Any], output: Form, *, full: bool = False) -> None:
    show(deployment, output, lambda: views.one(deployment, full=full))


def next_steps(name: str, address: Address, *, waited: bool) -> str:
    """What to do with it now, as lines that run as pasted."""
    shown = shlex.quote(plain(name))
    messages = '[{"role": "user", "content": "Hello"}]'
    body = f'{{"model": "{plain(name)}", "max_tokens": 60, "messages": {messages}}}'
    file = address.key_file
    key = f"$(cat {shlex.quote(str(file))})" if file else "$SLIPSTREAM_API_KEY"
    lines = [
        "",
        *([] if waited else ["Watch it:", f"  slipstream wait {shown}", ""]),
        "Talk to it:",
        f'  slipstream chat {shown} "Hello"',
        f"  curl {address.url}/v1/chat/completions -H 'Content-Type: application/json' \\",
        f'    -H "Authorization: Bearer {key}" \\',
        f"    -d {shlex.quote(body)}",
        "",
        f"A key for it: slipstream keys create {shown}",
    ]
    return "\n".join(lines)
