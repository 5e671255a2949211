"""The command line's entry: one program, a module for each noun, loaded when it is asked for."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from controlplane.cli.output import note, plain, say
from controlplane.errors import AppError, Invalid, Kind

PROGRAM = "slipstream"
_ROOM = "controlplane.cli."
MODULES: dict[str, tuple[str, ...]] = {
    "deployments": ("deploy", "ls", "get", "update", "delete"),
    "lifecycle": ("wait", "pause", "resume", "sleep", "wake"),
    "history": ("logs", "events"),
    "chat": ("chat",),
    "check": ("check",),
    "apply": ("apply", "export"),
    "importing": ("import",),
    "tiers": ("tiers",),
    "models": ("models",),
    "cache": ("cache",),
    "keys": ("keys",),
    "engines": ("engines", "demo-models"),
    "system": ("up", "down", "open", "doctor"),
}
"""Which module brings which commands, in the order of the help."""

EXIT: dict[Kind, int] = {
    Kind.MALFORMED: 2,
    Kind.INVALID: 2,
    Kind.TOO_LARGE: 2,
    Kind.NOT_FOUND: 3,
    Kind.UNAUTHENTICATED: 4,
    Kind.FORBIDDEN: 4,
    Kind.CONFLICT: 4,
    Kind.REFUSED: 4,
    Kind.STALE: 4,
    Kind.UNAVAILABLE: 5,
}
WAIT_ENDED = 6
_INTERRUPTED = 130
_FAULT = 1


def make_app(words: Sequence[str] = ()) -> typer.Typer:
    """The program, with the module that `words` need, or all where that can't be told."""
    app = typer.Typer(
        name=PROGRAM,
        help="Dedicated LLM deployments on your own GPUs, with a draft model running ahead.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        context_settings={"help_option_names": ["--help", "-h"]},
    )
    app.callback()(_main)
    wanted = words[0] if words else ""
    modules = [m for m, commands in MODULES.items() if wanted in commands] or list(MODULES)
    modules = [] if wanted == "--version" else modules
    for name in modules:
        importlib.import_module(_ROOM + name).register(app)
    return app


def _version(asked: bool) -> None:
    if asked:
        from importlib.metadata import version

        say(f"{PROGRAM} {version(PROGRAM)}")
        raise typer.Exit


def _main(
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_version, help="Print the version.")
    ] = False,
) -> None:
    """Dedicated LLM deployments on your own GPUs, with a draft model running ahead."""


def run(words: Sequence[str]) -> int:
    """Run one command line; returns its exit code. Whatever goes wrong is said in a sentence."""
    from typer._click.exceptions import ClickException
    from typer.exceptions import Abort

    try:
        _check_texts(words)
        code = make_app(words)(args=list(words), prog_name=PROGRAM, standalone_mode=False)
        sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except AppError as e:
        complain(e)
        return exit_code(e)
    except ClickException as e:
        _complain_of_usage(e, words)
        return e.exit_code
    except Abort:
        note("Stopped: nothing was changed.")
        return _FAULT
    except KeyboardInterrupt:
        return _INTERRUPTED
    except BrokenPipeError:
        _close_pipe()
        return 0
    except Exception as e:  # noqa: BLE001 (the last edge: a fault of ours is told as one)
        note(f"The command met a fault of its own ({type(e).__name__}).")
        note("  Please report it, with the command and: " + _where(e))
        return _FAULT


def _check_texts(words: Sequence[str]) -> None:
    """Bytes that are no UTF-8 come here as halves of surrogate pairs, which nothing can send."""
    if any("\ud800" <= c <= "\udfff" for word in words for c in word):
        raise Invalid("usage", "The text is no UTF-8.", hint="An argument holds other bytes.")


def exit_code(error: AppError) -> int:
    return WAIT_ENDED if error.code == "wait_ended" else EXIT[error.kind]


def complain(error: AppError) -> None:
    """One sentence, what is wrong where, and what to do about it."""
    note(plain(error.message))
    told = plain(error.message)
    for fault in error.fields:
        if plain(fault.detail) not in told:
            note(f"  {plain(fault.path)}: {plain(fault.detail)}")
    if error.hint and not (error.fields and error.hint.startswith("See errors[]")):
        note(f"  {plain(error.hint)}")


def _complain_of_usage(error: object, words: Sequence[str]) -> None:
    message = plain(error.format_message()) if hasattr(error, "format_message") else ""
    context = getattr(error, "ctx", None)
    if not message:  # help was asked for by saying nothing
        typer.echo(context.get_help() if context else "", err=True)
        return
    path = context.command_path if context else PROGRAM
    note(message.replace("Value error, ", ""))
    note(f"  See: {plain(path)} --help")


def _where(error: BaseException) -> str:
    step = error.__traceback__
    while step is not None and step.tb_next is not None:
        step = step.tb_next
    if step is None:
        return "no place known"
    return f"{os.path.basename(step.tb_frame.f_code.co_filename)}:{step.tb_lineno}"


def _close_pipe() -> None:
    """Whoever read has gone: what is still buffered goes nowhere."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())


def main() -> None:
    sys.exit(run(sys.argv[1:]))


if __name__ == "__main__":
    main()
