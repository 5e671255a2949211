"""`make bench`: every figure beside its goal. Nothing here fails a build."""

from __future__ import annotations

import statistics
import tempfile
from pathlib import Path

from rich.console import Console
from rich.table import Table

from controlplane.embedded import postgres, valkey
from tests.bench.footprint import second_start_and_memory
from tests.bench.latency import Figure, reaction
from tests.system.machine import Machine


def main() -> None:
    console = Console()
    with tempfile.TemporaryDirectory(prefix="slipstream-bench-") as text:
        folder = Path(text)
        folder.chmod(0o711)
        with console.status("Measuring reactions …"):
            figures = _reactions(folder)
        with console.status("Measuring two starts and the idle system …"):
            figures += second_start_and_memory(folder)
    console.print(_table(figures))


def _reactions(folder: Path) -> list[Figure]:
    place = postgres.place_of(folder / "stores", folder / "system")
    broker = valkey.place_of(folder / "stores")
    database, queue = postgres.start(place), valkey.start(broker)
    machine = Machine(folder / "machine", place.url(), broker.url)
    try:
        machine.up()
        return reaction(machine)
    finally:
        machine.close()
        valkey.end(queue)
        postgres.end(database)


def _table(figures: list[Figure]) -> Table:
    table = Table("figure", "median", "p95", "goal", "")
    for f in figures:
        worst = statistics.quantiles(f.values, n=20)[-1] if len(f.values) > 1 else f.values[0]
        goal = "" if f.goal is None else f"< {f.goal:g} {f.unit}"
        kept = "" if f.goal is None else ("kept" if worst < f.goal else "MISSED")
        table.add_row(
            f.what,
            f"{statistics.median(f.values):.3g} {f.unit}",
            f"{worst:.3g} {f.unit}",
            goal,
            kept,
        )
    return table


if __name__ == "__main__":
    main()
