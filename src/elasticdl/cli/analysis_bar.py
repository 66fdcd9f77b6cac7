"""The progress bar of what reads all rows of data."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from elasticdl.features.sql.interface import Progress


@contextmanager
def bar(quiet: bool = False) -> Iterator[Progress]:
    """On a terminal, unless `quiet`. Gone when it is done."""
    from rich.console import Console
    from rich.progress import BarColumn, TaskProgressColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bar

    console = Console(stderr=True)
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), TaskProgressColumn(), TimeElapsedColumn())
    with Bar(*columns, console=console, transient=True, disable=quiet or not console.is_terminal) as shown:
        task = shown.add_task("opening", total=1.0)
        yield lambda what, done: shown.update(task, description=what, completed=done)
