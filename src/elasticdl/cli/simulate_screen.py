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
    """One row a policy, or one column where a terminal is narrow; then what else there is to say about each."""
    if not console.is_terminal:
        console.width = max(console.width, 200)  # a file, or a pipe: one line a policy
    titles = ["policy", *(column.title for column in COLUMNS)]
    rows = [[one.policy, *cells(one)] for one in outcomes]
    if _width([titles, *rows]) <= console.width:
        console.print(_made(titles, rows))
    else:
        for some in _fitting(titles, rows, console.width):
            turned = [list(line) for line in zip(titles, *some, strict=True)]
            console.print(_made(turned[0], turned[1:]))
    for one in outcomes:
        for line in _remarks(one):
            console.print(line, markup=False, highlight=False, soft_wrap=True)


def _made(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    made = Table(box=None, header_style="bold", pad_edge=False)
    for index, title in enumerate(titles):
        made.add_column(escape(title), justify="right" if index else "left", no_wrap=True)
    for row in rows:
        made.add_row(*map(escape, row))
    return made


def _fitting(titles: Sequence[str], rows: list[list[str]], width: int) -> Iterator[list[list[str]]]:
    """As many policies at once as fit beside each other, one at least."""
    rest = rows
    while rest:
        count = len(rest)
        while count > 1 and _width(list(zip(titles, *rest[:count], strict=True))) > width:
            count -= 1
        yield rest[:count]
        rest = rest[count:]


def _width(lines: Sequence[Sequence[str]]) -> int:
    return sum(max(map(len, column)) + 2 for column in zip(*lines, strict=True))


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
