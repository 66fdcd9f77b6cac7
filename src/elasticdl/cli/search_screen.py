"""Where a search is shown: a table that is redrawn in a terminal, a line for each change elsewhere."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from elasticdl.cli.screen import draw, opened, say
from elasticdl.ctr.search import Seen
from elasticdl.ctr.study import State, Trial

_STYLES = {State.RUNNING: "cyan", State.COMPLETE: "green", State.PRUNED: "bright_black", State.FAILED: "red"}
FRAME = 6  # lines of the picture beside its trials


class SearchScreen:
    """Shows trials and notices. A terminal that went away is not an error."""

    def __init__(self, console: Console, live: Live | None) -> None:
        self._console = console
        self._live = live
        self._said: dict[int, tuple[Any, ...]] = {}

    @classmethod
    @contextmanager
    def open(cls) -> Iterator[SearchScreen]:
        console = Console()
        with opened(console) as live:
            yield cls(console, live)

    def show(self, trials: list[Trial], seen: Mapping[int, Seen], best: Trial | None, planned: int) -> None:
        if self._live:
            draw(self._live, table(trials, seen, best, planned, max(self._console.height - FRAME, 3)))
            return
        for trial in trials:
            state = _state(trial, seen.get(trial.number))
            now = (state, len(trial.reports))
            if self._said.get(trial.number) != now:
                self._said[trial.number] = now
                self.say(f"{trial.job}: {state}{_so_far(trial)}; {values(trial.values)}")

    def say(self, notice: str) -> None:
        say(self._console, notice)


def table(trials: list[Trial], seen: Mapping[int, Seen], best: Trial | None, planned: int, most: int) -> Table:
    """The newest trials; the best one always."""
    over = sum(trial.state is not State.RUNNING for trial in trials)
    shown = Table(
        box=None, header_style="bold", pad_edge=False, title=f"{over} of {planned} trials", title_justify="left"
    )
    for title in ("trial", "state", "evaluations", "best logloss", "parameters"):
        shown.add_column(title, justify="right" if title in ("evaluations", "best logloss") else "left")
    newest = trials[-most:]
    for trial in [*([best] if best and best not in newest else []), *newest]:
        is_best = best is not None and trial.number == best.number
        shown.add_row(
            f"{trial.number:03}",
            Text(_state(trial, seen.get(trial.number)), _STYLES[trial.state]),
            str(len(trial.reports)),
            Text(f"{min(trial.reports):.5f}{' best' if is_best else ''}" if trial.reports else "", "bold" * is_best),
            Text(values(trial.values), overflow="ellipsis", no_wrap=True),
        )
    return shown


def values(found: Mapping[str, Any]) -> str:
    """learning_rate 0.00123, columns 16"""
    return ", ".join(
        f"{key} {value:.4g}" if isinstance(value, float) else f"{key} {value}" for key, value in found.items()
    )


def _state(trial: Trial, seen: Seen | None) -> str:
    if trial.state is State.RUNNING:
        return seen.phase if seen and not seen.is_over else "running"
    return f"{trial.state.value} {trial.reason}".strip() if trial.state is not State.COMPLETE else trial.state.value


def _so_far(trial: Trial) -> str:
    if not trial.reports:
        return ""
    return f", evaluation {len(trial.reports)}: logloss {trial.reports[-1]:.5f}, best {min(trial.reports):.5f}"
