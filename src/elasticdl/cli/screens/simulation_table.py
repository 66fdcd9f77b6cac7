"""Shows simulations: progress bars while they run, then the table of policies, and the jobs that never ran."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.table import Table

from elasticdl.sim import runner
from elasticdl.sim.results.outcome import SimulationOutcome
from elasticdl.sim.results.table import COLUMNS, format_duration, format_row

MAX_LISTED_JOBS = 10  # of each policy


class SimulationScreen:
    """A progress bar for each policy; shows nothing without a terminal."""

    def __init__(self, bars: Progress | None, tasks: dict[str, Any]) -> None:
        self._bars = bars
        self._tasks = tasks

    def show(self, progress: runner.SimulationProgress) -> None:
        if self._bars:
            self._bars.update(
                self._tasks[progress.policy],
                completed=progress.finished_jobs,
                simulated=format_duration(progress.simulated_s),
                real=str(timedelta(seconds=round(progress.wall_s))),
            )


@contextmanager
def open_screen(policies: Sequence[str], total: int) -> Iterator[SimulationScreen]:
    console = Console(stderr=True)
    if not console.is_terminal:
        yield SimulationScreen(None, {})
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("jobs   simulated {task.fields[simulated]}   real {task.fields[real]}"),
    )
    with Progress(*columns, console=console) as bars:
        tasks = {name: bars.add_task(escape(name), total=total, simulated="0 s", real="0:00:00") for name in policies}
        yield SimulationScreen(bars, tasks)


def print_table(outcomes: Sequence[SimulationOutcome], console: Console) -> None:
    """Prints one row for each policy, or one column if the terminal is narrow; then remarks on each."""
    if not console.is_terminal:
        console.width = max(console.width, 200)  # a file, or a pipe: one line for each policy
    titles = ["policy", *(column.title for column in COLUMNS)]
    rows = [[outcome.policy, *format_row(outcome)] for outcome in outcomes]
    if _table_width([titles, *rows]) <= console.width:
        console.print(_make_table(titles, rows))
    else:
        for part in _split_by_width(titles, rows, console.width):
            turned = [list(line) for line in zip(titles, *part, strict=True)]
            console.print(_make_table(turned[0], turned[1:]))
    for outcome in outcomes:
        for line in _remark_lines(outcome):
            console.print(line, markup=False, highlight=False, soft_wrap=True)


def _make_table(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    table = Table(box=None, header_style="bold", pad_edge=False)
    for index, title in enumerate(titles):
        table.add_column(escape(title), justify="right" if index else "left", no_wrap=True)
    for row in rows:
        table.add_row(*map(escape, row))
    return table


def _split_by_width(titles: Sequence[str], rows: list[list[str]], width: int) -> Iterator[list[list[str]]]:
    """Splits the rows into groups that fit beside each other, at least one row each."""
    remaining = rows
    while remaining:
        count = len(remaining)
        while count > 1 and _table_width(list(zip(titles, *remaining[:count], strict=True))) > width:
            count -= 1
        yield remaining[:count]
        remaining = remaining[count:]


def _table_width(lines: Sequence[Sequence[str]]) -> int:
    return sum(max(map(len, column)) + 2 for column in zip(*lines, strict=True))


def _remark_lines(outcome: SimulationOutcome) -> Iterator[str]:
    if outcome.stopped_at is not None:
        stopped = f"stopped after {format_duration(outcome.stopped_at)}"
        yield f"{outcome.policy}: {stopped}; {outcome.unfinished} jobs were not over"
    if outcome.rejected_plans:
        refused = f"{outcome.rejected_plans} plans broke a rule and were refused"
        yield f"{outcome.policy}: {refused}, the last: {outcome.policy_error}"
    if outcome.never_started_jobs:
        yield f"{outcome.policy}: {len(outcome.never_started_jobs)} jobs never ran:"
        for job in outcome.never_started_jobs[:MAX_LISTED_JOBS]:
            yield f"  {job.name}: {job.reason}"
        if len(outcome.never_started_jobs) > MAX_LISTED_JOBS:
            yield f"  … and {len(outcome.never_started_jobs) - MAX_LISTED_JOBS} more; --json lists all"
