"""`engines` and `demo-models`: vLLM environments on this machine, and the demo pair."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import Annotated, TypeVar

import typer
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from controlplane.cli.output import Form, Output, console, grid, plain, show
from controlplane.demo_models.make import DRAFT, TARGET, make_demo_models
from controlplane.domain.engines import ENGINES
from controlplane.domain.tiers import DeviceKind
from controlplane.engine_envs import EngineEnv, Installing, find, installed, last_error
from controlplane.engine_envs.check import check as check_environment
from controlplane.engine_envs.install import install as install_engine
from controlplane.engine_envs.setup import converting_python, fitting_kind
from controlplane.errors import NotFound
from controlplane.long_jobs import OnProgress
from controlplane.long_jobs import Progress as Step
from controlplane.paths import DataDir
from controlplane.settings import Settings, load_settings

_T = TypeVar("_T")
_Row = dict[str, str]


class _Kind(StrEnum):
    CPU = "cpu"
    CUDA = "cuda"


_KindArgument = Annotated[
    _Kind | None, typer.Argument(help="cpu or cuda. [default: what fits this machine]")
]


def register(app: typer.Typer) -> None:
    """Add `engines` and `demo-models` to the program."""
    engines = typer.Typer(help="The engines (vLLM) that are installed on this machine.")
    engines.callback(invoke_without_command=True)(_list_by_default)
    engines.command("list")(list_)
    engines.command("install")(install)
    engines.command("check")(check)
    app.add_typer(engines, name="engines")
    app.command("demo-models")(demo_models)


def _list_by_default(context: typer.Context, output: Output = Form.TABLE) -> None:
    if context.invoked_subcommand is None:
        list_(output)


def list_(output: Output = Form.TABLE) -> None:
    """List the engines that Slipstream supports, and which of them are here."""
    settings = load_settings()
    if settings.engines.command:
        env = find(settings, fitting_kind(settings))
        assert isinstance(env, EngineEnv)
        row = _row(env.kind, env.version, "named by SLIPSTREAM_ENGINE_COMMAND")
        return _show([row | {"program": " ".join(env.program)}], output)
    here = {(env.kind, env.version) for env in installed(settings)}
    supported = {(kind, e.version) for e in ENGINES for kind in e.devices}
    return _show([_seen(settings, *each) for each in sorted(here | supported)], output)


def install(
    kind: _KindArgument = None,
    version: Annotated[str | None, typer.Option(help="vLLM's version. [default: newest]")] = None,
    output: Output = Form.TABLE,
) -> None:
    """Install an engine, or bring the plugin of an installed one up to date."""
    settings = load_settings()
    wanted = DeviceKind(kind) if kind else fitting_kind(settings)
    env = _watched(lambda report: install_engine(settings, wanted, version, report))
    _show([_seen(settings, env.kind, env.version)], output)


def check(output: Output = Form.TABLE) -> None:
    """Try every installed engine: import vLLM in it and tell its versions."""
    settings = load_settings()
    envs = installed(settings)
    if not envs:
        raise NotFound(
            "engine_missing",
            "No engine is installed.",
            hint="Run: slipstream engines install",
        )
    rows = []
    for env in envs:
        assert env.path is not None
        with console(stderr=True).status(f"Trying {env.path.name}"):
            found = check_environment(env.kind, env.path)
        rows.append(_row(env.kind, env.version, "works") | found)
    _show(rows, output)


def demo_models(output: Output = Form.TABLE) -> None:
    """Make the demo pair, demo/smollm2-135m and demo/smollm2-draft, where it isn't yet."""
    settings = load_settings()
    data = DataDir(settings.data_dir)
    python = converting_python(settings)
    folders = _watched(lambda report: make_demo_models(data, python, report))
    rows = [
        {"model": f"demo/{name}", "role": role, "path": str(folder)}
        for name, role, folder in zip((TARGET, DRAFT), ("target", "draft"), folders, strict=True)
    ]
    _show(rows, output)


def _seen(settings: Settings, kind: DeviceKind, version: str) -> _Row:
    found = find(settings, kind, version)
    if isinstance(found, EngineEnv):
        return _row(kind, version, "installed") | {"program": found.program[-1]}
    if isinstance(found, Installing):
        return _row(kind, version, f"installing, {found.fraction:.0%}: {found.message}")
    failed = last_error(settings, kind, version)
    state = f"failed: {failed.message} {failed.hint}".strip() if failed else "not installed"
    return _row(kind, version, state)


def _row(kind: DeviceKind, version: str, state: str) -> _Row:
    return {"kind": str(kind), "version": version, "state": state}


def _watched(work: Callable[[OnProgress], _T]) -> _T:
    """Do `work` under a progress bar (on stderr, so that the result can be piped)."""
    columns = (BarColumn(), TextColumn("{task.percentage:3.0f} %"), TimeElapsedColumn())
    with Progress(
        *columns, TextColumn("{task.description}", markup=False), console=console(stderr=True)
    ) as bar:
        task = bar.add_task("Looking at what is there", total=1.0)

        def report(step: Step) -> None:
            bar.update(task, completed=step.fraction, description=plain(step.message))

        result = work(report)
        bar.update(task, completed=1.0)
    return result


def _show(rows: Sequence[_Row], form: Form) -> None:
    heads = list(dict.fromkeys(key for row in rows for key in row))
    cells = [[row.get(head, "") for head in heads] for row in rows]
    show({"items": list(rows)}, form, lambda: grid([h.upper() for h in heads], cells))
