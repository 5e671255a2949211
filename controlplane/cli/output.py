"""How results reach the terminal: JSON as the API's, YAML, or a table; texts of others as they
are, without control characters and never read as markup."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
    from rich.text import Text

_WIDE = 100_000  # a pipe has no edge to wrap at
# Control characters, the marks that turn the order of what follows them, and halves of pairs,
# which no stream takes.
_CONTROL = re.compile(
    "[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\u200e\u200f\ufeff\ud800-\udfff]"
)
_ESCAPE = re.compile("\x1b(?:\\[[0-9;?]*[ -/]*[@-~]|\\][^\x07\x1b]*(?:\x07|\x1b\\\\)?|[@-_])")
# By a column's head: never cut or folded; folded between words; left out first where room lacks.
_WHOLE = {"NAME", "ID", "PHASE", "WHY", "TIER", "STATE", "AT", "EVENT"}
_PROSE = {"", "FOLDER", "PATH", "USED BY", "WHAT"}
_SPARE = ("BEGINS", "MADE", "DRAFT", "IDLE", "TIER", "MODEL")
_READABLE = 12  # columns of a text that is cut
LIGHTS = {
    "green": "green",
    "yellow": "yellow",
    "orange": "dark_orange",
    "red": "red",
    "grey": "bright_black",
}


class Form(StrEnum):
    TABLE = "table"
    JSON = "json"
    YAML = "yaml"


Output = Annotated[Form, typer.Option("--output", "-o", help="How to print the result.")]


def plain(value: object) -> str:
    """`value` as one line that can't do anything to a terminal."""
    return _CONTROL.sub(" ", _ESCAPE.sub("", "" if value is None else str(value)))


def named(text: object, name: object) -> str:
    """A server's words about any deployment, as said about this one."""
    return re.sub(r"(?<![\w/])NAME\b", lambda _: plain(name), plain(text))


def plain_lines(value: str) -> str:
    """The same, with its line breaks and tabs kept."""
    lines = _ESCAPE.sub("", value).replace("\r\n", "\n").split("\n")
    return "\n".join("\t".join(map(plain, line.split("\t"))) for line in lines)


def console(*, stderr: bool = False) -> Console:
    """A console that keeps NO_COLOR and never wraps what goes into a pipe or a file."""
    from rich.console import Console

    stream = sys.stderr if stderr else sys.stdout
    wide = None if stream.isatty() else _WIDE
    return Console(stderr=stderr, highlight=False, markup=False, emoji=False, width=wide)


def say(text: str = "") -> None:
    """A line on stdout: a result."""
    typer.echo(text)


def note(text: str) -> None:
    """A line on stderr, so that results can be piped."""
    typer.echo(text, err=True)


def show(data: Any, form: Form, table: Callable[[], RenderableType]) -> None:
    """Print `data` as it came, or what `table` makes of it."""
    if form is Form.JSON:
        say(json.dumps(data, indent=2))
    elif form is Form.YAML:
        from controlplane.cli.documents import write

        typer.echo(write(data), nl=False)
    else:
        print_rich(table())


def print_rich(what: RenderableType) -> None:
    """Without the blanks that pad a table's last column."""
    out = console()
    if out.is_terminal:
        out.print(what)
        return
    with out.capture() as got:
        out.print(what)
    text = got.get()
    typer.echo("\n".join(line.rstrip() for line in text.split("\n")), nl=False)


def grid(heads: Sequence[str], rows: Iterable[Sequence[str | Text]]) -> RenderableType:
    """A table without lines; cells of plain text are made harmless. Where it is too wide, names
    stay whole, prose goes on below, the rest is cut, and what can be spared is left out."""
    from rich.text import Text

    made = [[c if isinstance(c, Text) else Text(plain(c)) for c in row] for row in rows]
    return _Grid(list(heads), made)


class _Grid:
    """A table that looks at the room it has when it is printed."""

    def __init__(self, heads: list[str], rows: list[list[Text]]) -> None:
        self._heads, self._rows = heads, rows

    def __rich_console__(self, _: Console, options: ConsoleOptions) -> RenderResult:
        from rich.table import Table
        from rich.text import Text

        shown = self._shown(options.max_width)
        table = Table(box=None, pad_edge=False, header_style="bold")
        for n in shown:
            above = Text(self._heads[n], no_wrap=True, overflow="ellipsis")
            table.add_column(above, overflow="fold", no_wrap=self._heads[n] in _WHOLE)
        for row in self._rows:
            for head, cell in zip(self._heads, row, strict=True):
                if head not in _PROSE:
                    cell.no_wrap, cell.overflow = True, "ellipsis"
            table.add_row(*(row[n] for n in shown))
        yield table

    def _shown(self, room: int) -> list[int]:
        """The columns for which there is room."""
        least = []
        for n, head in enumerate(self._heads):
            widest = max((row[n].cell_len for row in self._rows), default=0)
            least.append(max(len(head), widest if head in _WHOLE else min(widest, _READABLE)))
        shown = list(range(len(least)))
        for n in [self._heads.index(h) for h in _SPARE if h in self._heads[1:]]:
            if sum(least[i] + 2 for i in shown) - 2 > room:
                shown.remove(n)
        return shown


def facts(rows: Iterable[tuple[str, str | Text]]) -> RenderableType:
    """Words with what they stand for, a line each."""
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for word, value in rows:
        table.add_row(Text(word), value if isinstance(value, Text) else Text(plain(value)))
    return table


def lit(light: object, words: object) -> Text:
    """`words` behind a lamp of that colour."""
    from rich.text import Text

    colour = LIGHTS.get(str(light), "default")
    return Text.assemble(("●", colour), " ", (plain(words), colour))


def moment(text: object) -> datetime | None:
    try:
        at = datetime.fromisoformat(str(text).replace("Z", "+00:00"))
    except ValueError:
        return None
    return at if at.tzinfo else at.replace(tzinfo=UTC)


def ago(text: object, now: datetime) -> str:
    """How long ago (or ahead, without a word for it) a time of the API is."""
    at = moment(text)
    return "-" if at is None else span(abs((now - at).total_seconds()))


def span(seconds: float) -> str:
    """Two units at most: `45s`, `3m 20s`, `2h 5m`, `4d 3h`."""
    whole = int(seconds)
    for size, unit, below, part in (
        (86400, "d", 3600, "h"),
        (3600, "h", 60, "m"),
        (60, "m", 1, "s"),
    ):
        if whole >= size:
            rest = whole % size // below
            return f"{whole // size}{unit}" + (f" {rest}{part}" if rest else "")
    return f"{whole}s"
