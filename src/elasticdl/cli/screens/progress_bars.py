"""Progress of data analyses and of image builds in a terminal."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from elasticdl.jobs.interface import DataCheckProgress, SubmissionReporter

if TYPE_CHECKING:
    from elasticdl.features.sql.interface import AnalysisProgress


@contextmanager
def analysis_progress(quiet: bool = False) -> Iterator[AnalysisProgress]:
    """Shows progress on a terminal, unless `quiet`, and removes it at the end."""
    from rich.console import Console
    from rich.progress import BarColumn, TaskProgressColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bar

    console = Console(stderr=True)
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), TaskProgressColumn(), TimeElapsedColumn())
    with Bar(*columns, console=console, transient=True, disable=quiet or not console.is_terminal) as bar:
        task = bar.add_task("opening", total=1.0)
        yield lambda what, done: bar.update(task, description=what, completed=done)


class TerminalReporter(SubmissionReporter):
    """Prints what a submission reports, and shows progress bars on a terminal."""

    def __init__(self, *, is_quiet: bool = False) -> None:
        self._is_quiet = is_quiet  # no bars

    def say(self, line: str) -> None:
        click.echo(line)

    def warn(self, line: str) -> None:
        click.echo(f"note: {line}", err=True)

    @contextmanager
    def data_check_progress(self) -> Iterator[DataCheckProgress]:
        from rich.console import Console
        from rich.progress import BarColumn, DownloadColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

        console = Console()
        columns = (
            TextColumn("looking at {task.description}", markup=False),
            BarColumn(),
            DownloadColumn(),
            TimeRemainingColumn(),
        )
        tasks: dict[str, TaskID] = {}
        is_hidden = self._is_quiet or not console.is_terminal
        with Progress(*columns, console=console, transient=True, disable=is_hidden) as bars:

            def update(address: str, done: int, total: int) -> None:
                task = tasks.setdefault(address, TaskID(-1))
                if task < 0:
                    task = tasks[address] = bars.add_task(address, total=None)
                bars.update(task, completed=done, total=total)

            yield update

    @contextmanager
    def analysis_progress(self) -> Iterator[AnalysisProgress]:
        with analysis_progress(self._is_quiet) as progress:
            yield progress


@contextmanager
def engine_progress(what: str) -> Iterator[Callable[[str], None]]:
    """Yields a function that shows a line. SIGTERM ends the command as Ctrl-C does, so that it cleans up."""
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    console = Console(stderr=True, soft_wrap=True, highlight=False)
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    try:
        if not console.is_terminal:
            console.print(what, markup=False)
        with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
            progress.add_task(what, total=None)
            yield lambda line: progress.console.print(line, style="bright_black", markup=False)
    finally:
        signal.signal(signal.SIGTERM, before)
