"""Writes the report as one HTML page with its charts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

from elasticdl.ctr.report import charts
from elasticdl.ctr.report.columns import ReportColumn
from elasticdl.ctr.report.curves import TrainingCurves
from elasticdl.ctr.report.importance import Importance
from elasticdl.ctr.report.measurement import ModelMeasurement
from elasticdl.ctr.report.metrics import ClickMetrics
from elasticdl.reporting import html


@dataclass(frozen=True, slots=True)
class ModelReport:
    """All that is told. `facts` stand at the top; `settings` are documents by title, shown as they are."""

    name: str
    facts: Mapping[str, str]
    measurement: ModelMeasurement
    training_curves: TrainingCurves | None  # None: the job that trained the model is not known here
    columns: Sequence[ReportColumn]
    settings: Mapping[str, str]
    command: str


def write_report(directory: Path, report: ModelReport) -> Path:
    """index.html, and the pictures as PNGs."""
    pictures = draw_charts(report)
    return html.write_report(
        directory, html.html_document(f"{report.name}: report", _render_body(report, pictures)), pictures
    )


def draw_charts(report: ModelReport) -> dict[str, bytes]:
    measured = report.measurement
    found = (
        {"training": charts.draw_training(report.training_curves, report.measurement.step)}
        if report.training_curves is not None
        else {}
    )
    return found | {
        "roc": charts.draw_roc(measured.roc, measured.metrics.auc),
        "calibration": charts.draw_calibration(measured.calibration),
        "chances": charts.draw_probabilities(measured.histogram),
        "importance": charts.draw_importance(measured.importance),
    }


def _render_body(report: ModelReport, pictures: Mapping[str, bytes]) -> str:
    measured = report.measurement
    images = {name: html.image_html(name, content) for name, content in pictures.items()}
    rows = f"{measured.evaluated_on} rows ({measured.metrics.rows:,})"
    return "\n".join(
        [
            f"<h1>{escape(report.name)}</h1>",
            f"<table>{''.join(_render_fact(name, text) for name, text in report.facts.items())}</table>",
            "<h2>How good it is</h2>",
            _render_metrics(measured),
            "<h2>Training</h2>",
            images.get("training", '<p class="note">The job that trained this model is not on this machine.</p>'),
            f"<h2>ROC curve and calibration: {escape(rows)}</h2>",
            f'<div class="pair">{images["roc"]}{images["calibration"]}</div>',
            f'<p class="note">Calibration: {len(measured.calibration)} bins of about as many rows each, by predicted '
            "chance. Points below the dashed line: more was predicted than clicked.</p>",
            f"<h2>Predicted chances: {escape(rows)}</h2>",
            images["chances"],
            "<h2>What the columns are worth to the model</h2>",
            _importance_note(measured),
            images["importance"],
            "<h2>Columns</h2>",
            f'<div class="wide">{_render_columns(report.columns)}</div>',
            '<p class="note">Missing and distinct are of the training rows. Columns without an importance are not '
            "seen by the model.</p>",
            "<h2>Settings</h2>",
            *(
                f"<details><summary>{escape(title)}</summary><pre>{escape(text)}</pre></details>"
                for title, text in report.settings.items()
            ),
            f"<h2>Made by</h2><pre>{escape(report.command)}</pre>",
            f'<p class="note">{escape(", ".join(f"{name} {text}" for name, text in measured.versions.items()))}</p>',
        ]
    )


def _render_fact(name: str, text: str) -> str:
    return f"<tr><td>{escape(name)}</td><td class=left>{escape(text)}</td></tr>"


def _render_metrics(measured: ModelMeasurement) -> str:
    titles = ("rows", "clicks", "rate", "logloss", "of the base rate", "gain", "AUC", "calibration")
    head = "".join(f"<th>{title}</th>" for title in ("", *titles))
    parts = {"validation": measured.validation, "test": measured.test}
    rows = [_render_row(name, _format_metrics(one)) for name, one in parts.items() if one is not None]
    missing = '<p class="note">There are no test rows; all below is of the validation rows.</p>'
    return (
        f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table>"
        f"{missing if measured.test is None else ''}"
        '<p class="note">Of the base rate: the logloss of saying the rows\' own rate of clicks of every row. Gain: the '
        "part of that which the model takes away. Calibration: predicted clicks over clicks.</p>"
    )


def _format_metrics(one: ClickMetrics) -> list[str]:
    return [
        f"{one.rows:,}", f"{one.clicks:,}", f"{one.click_rate:.2%}", f"{one.logloss:.5f}", f"{one.base_logloss:.5f}",
        _format_or_dash(one.gain, ".2%"), _format_or_dash(one.auc, ".5f"), _format_or_dash(one.calibration, ".4f"),
    ]  # fmt: skip


def _importance_note(measured: ModelMeasurement) -> str:
    times = "once" if measured.importance_repeats == 1 else f"{measured.importance_repeats} times"
    return (
        f'<p class="note">Each column\'s values change places {times} among {measured.importance_rows:,} '
        f"{measured.evaluated_on} rows (seed {measured.seed}); how much worse the model gets is what the column is worth. "
        "Columns that tell the same share their worth, so that each may seem worth little.</p>"
    )


def _render_columns(found: Sequence[ReportColumn]) -> str:
    heads = ("column", "kind", "missing", "distinct", "treatment", "why", "rise in logloss", "drop in AUC")
    left = {"treatment", "why", "kind"}
    head = "".join(f"<th{' class=left' if title in left else ''}>{title}</th>" for title in heads)
    # The most important first, then those that the model does not see, as they stand in the data.
    ordered = sorted(found, key=lambda one: -one.importance.logloss_rise if one.importance else float("inf"))
    return (
        f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(_render_column(one) for one in ordered)}</tbody></table>"
    )


def _render_column(one: ReportColumn) -> str:
    about = "" if one.statistics.is_distinct_exact else "≈"
    cells = [
        f"<td>{escape(one.name)}</td>",
        f"<td class=left>{escape(one.statistics.kind)}</td>",
        f"<td>{one.missing_share:.1%}</td>",
        f"<td>{about}{one.statistics.distinct:,}</td>",
        f"<td class=left><code>{escape(', '.join(one.transforms))}</code></td>",
        f"<td class=left>{escape(one.reason)}</td>",
        *(f"<td>{text}</td>" for text in _format_importance(one.importance)),
    ]
    return f"<tr>{''.join(cells)}</tr>"


def _format_importance(one: Importance | None) -> tuple[str, str]:
    if one is None:
        return "", ""
    return _format_spread(one.logloss_rise, one.logloss_deviation), _format_spread(one.auc_drop, one.auc_deviation)


def _format_spread(value: float | None, spread: float | None) -> str:
    if value is None:
        return ""
    return f"{value:.5f}" + ("" if spread is None else f" ± {spread:.5f}")


def _render_row(name: str, cells: Sequence[str]) -> str:
    return f"<tr><td>{escape(name)}</td>{''.join(f'<td>{escape(cell)}</td>' for cell in cells)}</tr>"


def _format_or_dash(value: float | None, form: str) -> str:
    return "–" if value is None else format(value, form)
