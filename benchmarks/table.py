"""One table per benchmark: what was measured, ours, the peer's in the same run, and the goal."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table


@dataclass(frozen=True, slots=True)
class Row:
    """One measure. `goal` is empty and `met` None if no goal is set; `peer` is None if the peer has no result."""

    measure: str
    unit: str
    ours: float | str | None
    peer: float | str | None
    peer_name: str
    goal: str = ""
    met: bool | None = None


def show(title: str, rows: Sequence[Row], *, notes: Sequence[str] = ()) -> None:
    table = Table(title=title, title_justify="left")
    for heading in ("measure", "unit", "ours", "peer", "peer's name", "goal", "met"):
        table.add_column(
            heading, justify="right" if heading in ("ours", "peer") else "left", no_wrap=heading == "measure"
        )
    for row in rows:
        met = {True: "[green]yes[/]", False: "[red]no[/]", None: ""}[row.met]
        table.add_row(row.measure, row.unit, _text(row.ours), _text(row.peer), row.peer_name, row.goal, met)
    # Without a terminal the table is as wide as it needs: a log must not wrap its numbers.
    console = Console() if os.isatty(1) else Console(width=200)
    console.print(table)
    for note in notes:
        console.print(note, highlight=False)


def write(path: Path, rows: Sequence[Row]) -> None:
    """Writes the rows as a JSON list of {measure, unit, ours, peer, peer_name, goal, met}."""
    path.write_text(json.dumps([asdict(row) for row in rows], indent=2) + "\n")


def machine() -> str:
    """Describes the load of the machine, so that a table from a busy one says so."""
    return f"{time.strftime('%H:%M:%S')} {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f} in the last minute"


def _text(value: float | str | None) -> str:
    if value is None:
        return "–"
    if isinstance(value, str):
        return value
    return f"{value:,.3f}" if abs(value) < 100 else f"{value:,.0f}"
