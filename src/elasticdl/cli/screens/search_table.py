"""Shows a search: a table of trials that is redrawn in a terminal, a line for each change elsewhere."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from elasticdl.cli.screens.live_job import open_live, print_line, update_live
from elasticdl.ctr.search.loop import TrialProgress
from elasticdl.ctr.search.session import format_values
from elasticdl.ctr.search.study import Trial, TrialStatus

_STATE_STYLES = {
    TrialStatus.RUNNING: "cyan",
    TrialStatus.COMPLETE: "green",
    TrialStatus.PRUNED: "bright_black",
    TrialStatus.FAILED: "red",
}
FRAME_LINES = 6  # lines of the view beside its trials


class SearchScreen:
    """Shows trials and notices. A terminal that is gone is not an error."""

    def __init__(self, console: Console, live: Live | None) -> None:
        self._console = console
        self._live = live
        self._said: dict[int, tuple[Any, ...]] = {}

    @classmethod
    @contextmanager
    def open(cls) -> Iterator[SearchScreen]:
        console = Console()
        with open_live(console) as live:
            yield cls(console, live)

    def show(self, trials: list[Trial], seen: Mapping[int, TrialProgress], best: Trial | None, planned: int) -> None:
        if self._live:
            update_live(
                self._live, trials_table(trials, seen, best, planned, max(self._console.height - FRAME_LINES, 3))
            )
            return
        for trial in trials:
            state = _state_text(trial, seen.get(trial.number))
            now = (state, len(trial.reports))
            if self._said.get(trial.number) != now:
                self._said[trial.number] = now
                self.show_notice(f"{trial.job}: {state}{_progress_text(trial)}; {format_values(trial.values)}")

    def show_notice(self, notice: str) -> None:
        print_line(self._console, notice)


def trials_table(
    trials: list[Trial], seen: Mapping[int, TrialProgress], best: Trial | None, planned: int, max_rows: int
) -> Table:
    """Lists the newest trials, and always the best one."""
    over = sum(trial.state is not TrialStatus.RUNNING for trial in trials)
    table = Table(
        box=None, header_style="bold", pad_edge=False, title=f"{over} of {planned} trials", title_justify="left"
    )
    for title in ("trial", "state", "evaluations", "best logloss", "parameters"):
        table.add_column(title, justify="right" if title in ("evaluations", "best logloss") else "left")
    newest = trials[-max_rows:]
    for trial in [*([best] if best and best not in newest else []), *newest]:
        is_best = best is not None and trial.number == best.number
        table.add_row(
            f"{trial.number:03}",
            Text(_state_text(trial, seen.get(trial.number)), _STATE_STYLES[trial.state]),
            str(len(trial.reports)),
            Text(f"{min(trial.reports):.5f}{' best' if is_best else ''}" if trial.reports else "", "bold" * is_best),
            Text(format_values(trial.values), overflow="ellipsis", no_wrap=True),
        )
    return table


def _state_text(trial: Trial, seen: TrialProgress | None) -> str:
    if trial.state is TrialStatus.RUNNING:
        return seen.phase if seen and not seen.is_over else "running"
    return (
        f"{trial.state.value} {trial.reason}".strip() if trial.state is not TrialStatus.COMPLETE else trial.state.value
    )


def _progress_text(trial: Trial) -> str:
    if not trial.reports:
        return ""
    return f", evaluation {len(trial.reports)}: logloss {trial.reports[-1]:.5f}, best {min(trial.reports):.5f}"
