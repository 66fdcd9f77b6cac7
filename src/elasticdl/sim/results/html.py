"""Writes the report as one self-contained HTML page: metrics, figures and the command."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
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
    pictures = {
        "utilization": figures.draw_utilization(outcomes),
        "completion": figures.draw_completion_times(outcomes),
    }
    pictures |= {f"gantt-{_safe_file_name(outcome.policy)}": figures.draw_gantt(outcome) for outcome in outcomes}
    return html.write_report(directory, _render_page(outcomes, command, about, pictures), pictures)


def _render_page(
    outcomes: Sequence[SimulationOutcome], command: str, about: Mapping[str, str], pictures: Mapping[str, bytes]
) -> str:
    facts = " · ".join(f"{escape(key)}: {escape(value)}" for key, value in about.items())
    images = "\n".join(html.image_html(name, content) for name, content in pictures.items())
    body = f"""<h1>Simulation of {len(outcomes)} polic{"y" if len(outcomes) == 1 else "ies"}</h1>
<p class="note">{facts}</p>
<div class="wide">{_render_table(outcomes)}</div>
<p class="note">JCT: from a job's submission to its end. Queueing: mean time without workers. Fairness: a job's duration
over that on its fair share of the cluster alone; above 1 it was slower than with its share. The best value of
a column is bold.</p>
{_render_notes(outcomes)}
{images}
<h2>Command</h2><pre>{escape(command)}</pre>"""
    return html.html_document("ElasticDL simulation", body)


def _render_table(outcomes: Sequence[SimulationOutcome]) -> str:
    head = "".join(f"<th>{escape(column.title)}</th>" for column in COLUMNS)
    best = [column.best_of([column.value(outcome) for outcome in outcomes]) for column in COLUMNS]
    rows = []
    for outcome in outcomes:
        table_cells = []
        for column, text, best_value in zip(COLUMNS, format_row(outcome), best, strict=True):
            is_best = len(outcomes) > 1 and best_value is not None and column.value(outcome) == best_value
            table_cells.append(f"<td{' class=best' if is_best else ''}>{escape(text)}</td>")
        rows.append(f"<tr><td>{escape(outcome.policy)}</td>{''.join(table_cells)}</tr>")
    return f"<table><thead><tr><th>policy</th>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table>"


def _render_notes(outcomes: Sequence[SimulationOutcome]) -> str:
    notes = []
    for outcome in outcomes:
        if outcome.stopped_at is not None:
            text = (
                f"was stopped after {outcome.stopped_at:.0f} simulated seconds; {outcome.unfinished} jobs had not ended"
            )
            notes.append(f"<p><b>{escape(outcome.policy)}</b> {text}.</p>")
        if outcome.rejected_plans:
            notes.append(
                f"<p><b>{escape(outcome.policy)}</b>: {outcome.rejected_plans} plans rejected: "
                f"{escape(outcome.policy_error)}</p>"
            )
        if outcome.never_started_jobs:
            rows = "".join(
                f"<tr><td>{escape(job.name)}</td><td class=left>{escape(job.reason)}</td></tr>"
                for job in outcome.never_started_jobs[:MAX_LISTED_JOBS]
            )
            more = (
                f"<p>… and {len(outcome.never_started_jobs) - MAX_LISTED_JOBS} more</p>"
                if len(outcome.never_started_jobs) > MAX_LISTED_JOBS
                else ""
            )
            notes.append(f"<h2>{escape(outcome.policy)}: jobs that never ran</h2><table>{rows}</table>{more}")
    return "\n".join(notes)


def _safe_file_name(policy: str) -> str:
    return "".join(letter if letter.isalnum() or letter in "-_." else "-" for letter in policy)
