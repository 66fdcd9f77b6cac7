"""Writes the report as one self-contained HTML page: metrics, figures and the command."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from elasticdl.reporting import html
from elasticdl.sim.results import figures
from elasticdl.sim.results.outcome import SimulationOutcome
from elasticdl.sim.results.table import COLUMNS, format_row

MAX_LISTED_JOBS = 50  # jobs that never ran


def write_report(
    directory: Path, outcomes: Sequence[SimulationOutcome], command: str, about: Mapping[str, str]
) -> Path:
    """Writes index.html with all figures embedded, and each figure as a PNG beside it."""
    images = {
        "utilization": figures.draw_utilization(outcomes),
        "completion": figures.draw_completion_times(outcomes),
    }
    images |= {f"gantt-{_safe_file_name(outcome.policy)}": figures.draw_gantt(outcome) for outcome in outcomes}
    return html.write_report(
        directory,
        "elasticdl.sim.results",
        "report.html",
        images,
        outcomes=outcomes,
        about=about,
        titles=[column.title for column in COLUMNS],
        rows=_mark_best(outcomes),
        max_listed_jobs=MAX_LISTED_JOBS,
        command=command,
    )


def _mark_best(outcomes: Sequence[SimulationOutcome]) -> dict[str, list[tuple[str, bool]]]:
    """Returns the cells of each policy, and whether a cell is the best of its column."""
    best = [column.best_of([column.value(outcome) for outcome in outcomes]) for column in COLUMNS]
    rows = {}
    for outcome in outcomes:
        rows[outcome.policy] = [
            (text, len(outcomes) > 1 and best_value is not None and column.value(outcome) == best_value)
            for column, text, best_value in zip(COLUMNS, format_row(outcome), best, strict=True)
        ]
    return rows


def _safe_file_name(policy: str) -> str:
    return "".join(letter if letter.isalnum() or letter in "-_." else "-" for letter in policy)
