"""Where simulations are shown: bars while they run, on a terminal; then the table, and who never ran."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.table import Table

from elasticdl.sim import running
from elasticdl.sim.columns import COLUMNS, cells, duration
from elasticdl.sim.outcome import Outcome

MOST_NEVER = 10  # that are listed of each policy


class Screen:
    """A bar a policy. Nothing where nobody looks."""

    def __init__(self, bars: Progress | None, tasks: dict[str, Any]) -> None:
        self._bars = bars
        self._tasks = tasks

    def show(self, progress: running.Progress) -> None:
        if self._bars:
            self._bars.update(
                self._tasks[progress.policy],
                completed=progress.done,
                simulated=duration(progress.now),
                real=str(timedelta(seconds=round(progress.wall_s))),
            )


@contextmanager
def opened(policies: Sequence[str], total: int) -> Iterator[Screen]:
    console = Console(stderr=True)
    if not console.is_terminal:
        yield Screen(None, {})
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("jobs   simulated {task.fields[simulated]}   real {task.fields[real]}"),
    )
    with Progress(*columns, console=console) as bars:
        tasks = {name: bars.add_task(escape(name), total=total, simulated="0 s", real="0:00:00") for name in policies}
        yield Screen(bars, tasks)


def table(outcomes: Sequence[Outcome], console: Console) -> None:
    """One row a policy; then what else there is to say about each."""
    if not console.is_terminal:
        console.width = 200  # a file, or a pipe: one line a policy
    made = Table(box=None, header_style="bold", pad_edge=False)
    made.add_column("policy")
    for column in COLUMNS:
        made.add_column(column.title, justify="right")
    for one in outcomes:
        made.add_row(escape(one.policy), *cells(one))
    console.print(made)
    for one in outcomes:
        for line in _remarks(one):
            console.print(line, markup=False, highlight=False, soft_wrap=True)


def _remarks(one: Outcome) -> Iterator[str]:
    if one.stopped_at is not None:
        yield f"{one.policy}: stopped after {duration(one.stopped_at)}; {one.unfinished} jobs were not over"
    if one.refused:
        yield f"{one.policy}: {one.refused} answers broke a rule and were refused, the last: {one.trouble}"
    if one.never:
        yield f"{one.policy}: {len(one.never)} jobs never ran:"
        for job in one.never[:MOST_NEVER]:
            yield f"  {job.name}: {job.why}"
        if len(one.never) > MOST_NEVER:
            yield f"  … and {len(one.never) - MOST_NEVER} more; --json lists all"
