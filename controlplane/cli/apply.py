"""`apply` and `export`: deployments as files."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from controlplane.cli.names import Ref
from controlplane.cli.output import Form, Output, plain, say
from controlplane.domain.spec_json import parse_spec, spec_to_json
from controlplane.errors import AppError, Invalid, Kind, NotFound, Refused, Unavailable

if TYPE_CHECKING:
    from controlplane.cli.client import Client

_ANY_TIER = "no-tier-named"
_NOT_UTF8 = "is no UTF-8 text"


def register(app: typer.Typer) -> None:
    app.command("apply")(apply)
    app.command("export")(export)


@dataclass(frozen=True, slots=True)
class Wanted:
    """One document: where it stands, and the whole spec that it asks for, defaults filled in.
    `tier` is missing where the document names none: the standing one, or the server's, is kept."""

    source: str
    spec: Mapping[str, Any]
    raw: Mapping[str, Any]

    @property
    def name(self) -> str:
        return str(self.spec["name"])


def apply(
    file: Annotated[
        list[str], typer.Option("--file", "-f", help="YAML or JSON, - for stdin; repeatable.")
    ],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would change only.")] = False,
) -> None:
    """Make each deployment what the files say. What a file leaves out gets its default."""
    from controlplane.cli.client import Client

    wanted = [w for source in file for w in _read(source)]
    if not wanted:
        raise Invalid("nothing_to_apply", "The files hold no deployment.")
    names = [w.name for w in wanted]
    for w in wanted:
        if names.count(w.name) > 1:
            raise Invalid("named_twice", f'"{w.name}" stands twice in the files.')
    with Client() as client:
        # All are looked at before one is changed, so that what is wrong changes nothing.
        standing = [_standing(client, w) for w in wanted]
        for w, deployment in zip(wanted, standing, strict=True):
            _check(client, w, deployment)
        for w, deployment in zip(wanted, standing, strict=True):
            _apply_one(client, w, deployment, dry_run=dry_run)


def export(name: Ref, output: Output = Form.YAML) -> None:
    """Print a deployment as a file that apply reads back."""
    from controlplane.cli.client import Client, at
    from controlplane.cli.documents import write

    with Client() as client:
        spec = _spec_of(client.get(at(name)))
    if output is Form.JSON:
        say(json.dumps(spec, indent=2))
    else:
        typer.echo(write(spec), nl=False)


def _read(source: str) -> Iterator[Wanted]:
    from controlplane.cli.documents import read

    shown = "stdin" if source == "-" else plain(source)
    try:
        raw = sys.stdin.buffer.read() if source == "-" else Path(source).read_bytes()
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as e:
        raise Invalid("invalid_file", f"{shown} {_NOT_UTF8}.") from e
    except FileNotFoundError as e:
        raise NotFound("no_such_file", f"There is no file {shown}.") from e
    except (OSError, ValueError) as e:
        why = getattr(e, "strerror", None) or "not a file's name"
        raise Invalid("invalid_file", f"{shown} can't be read: {why}.") from e
    for number, document in enumerate(_each(read(text, shown)), 1):
        where = shown if number == 1 else f"{shown}, document {number}"
        try:
            spec = parse_spec(document, default_tier=_ANY_TIER)
        except Invalid as e:
            raise Invalid(e.code, f"{where}: {e.message}", hint=e.hint, fields=e.fields) from e
        told = spec_to_json(spec)
        if told["tier"] == _ANY_TIER:
            del told["tier"]
        yield Wanted(where, told, document)


def _each(documents: Sequence[Any]) -> Iterator[Any]:
    """A list in a file is as many documents."""
    for document in documents:
        yield from document if isinstance(document, list) else [document]


def _standing(client: Client, wanted: Wanted) -> dict[str, Any] | None:
    from controlplane.cli.client import at

    try:
        return client.get(at(wanted.name))
    except AppError as e:
        if e.kind is Kind.NOT_FOUND and e.code != "no_such_path":
            return None
        raise


def _check(client: Client, wanted: Wanted, standing: Mapping[str, Any] | None) -> None:
    """Raises what the server would refuse. A tier that a deployment has already is no news."""
    from controlplane.cli.check import findings

    asked = {k: v for k, v in wanted.raw.items() if k != "name"}
    kept = standing is not None and _spec_of(standing).get("tier") == wanted.spec.get("tier")
    try:
        found = findings(client.post("/plans", asked))
    except AppError as e:
        if e.kind is not Kind.INVALID:
            raise
        e.message = f"{wanted.source}: {e.message}"
        raise
    for finding in found:
        code = str(finding.get("code"))
        if finding.get("severity") == "error" and not (kept and code == "tier_not_here"):
            detail = f"{wanted.source}: {plain(finding.get('detail'))}"
            raise Refused(code, detail, hint=plain(finding.get("hint")))


def _apply_one(
    client: Client, wanted: Wanted, standing: dict[str, Any] | None, *, dry_run: bool
) -> None:
    from controlplane.cli.client import at

    would = "would be " if dry_run else ""
    if standing is None:
        if not dry_run:
            client.post("/deployments", dict(wanted.raw))
        say(f"{wanted.name}: {would}made")
        return
    patch = changes(_spec_of(standing), wanted.spec)
    if not patch:
        say(f"{wanted.name}: unchanged")
        return
    if not dry_run:
        generation = standing.get("generation")
        assert isinstance(generation, int)
        client.patch(at(wanted.name), patch, generation=generation)
    say(f"{wanted.name}: {would}changed")
    for path, before, after in difference(_spec_of(standing), patch):
        say(f"  {plain(path)}: {_word(before)} -> {_word(after)}")


def changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    """The merge patch that turns `before` into `after`. What `after` has no word on at the top
    stays; inside, it goes."""
    made: dict[str, Any] = {}
    for key, value in after.items():
        old = before.get(key)
        if isinstance(value, Mapping):
            old = old if isinstance(old, Mapping) else {}
            inner = changes(old, value) | {k: None for k in old if k not in value}
            if inner:
                made[key] = inner
        elif value != old or type(value) is not type(old):
            made[key] = value
    return made


def difference(
    before: Mapping[str, Any], patch: Mapping[str, Any], path: str = ""
) -> Iterator[tuple[str, Any, Any]]:
    """Each value that `patch` changes: its path, what it was, what it becomes."""
    for key, value in patch.items():
        old, here = before.get(key), f"{path}{key}"
        if isinstance(value, Mapping):
            yield from difference(old if isinstance(old, Mapping) else {}, value, f"{here}.")
        else:
            yield here, old, value


def _spec_of(deployment: Mapping[str, Any]) -> dict[str, Any]:
    spec = deployment.get("spec")
    if not isinstance(spec, dict) or not isinstance(deployment.get("generation"), int):
        raise Unavailable("not_slipstream", "The server's answer is no deployment.")
    return spec


def _word(value: Any) -> str:
    return "nothing" if value is None else json.dumps(value)
