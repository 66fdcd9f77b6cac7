"""Writes the report as one HTML page with its charts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from elasticdl.ctr.report import charts
from elasticdl.ctr.report.columns import ReportColumn
from elasticdl.ctr.report.curves import TrainingCurves
from elasticdl.ctr.report.importance import Importance
from elasticdl.ctr.report.measurement import ModelMeasurement
from elasticdl.ctr.report.metrics import ClickMetrics
from elasticdl.reporting import html

METRIC_TITLES = ("rows", "clicks", "click rate", "logloss", "base", "gain", "AUC", "calibration")
COLUMN_TITLES = ("column", "kind", "missing", "distinct", "transforms", "reason", "rise in logloss", "drop in AUC")
LEFT_TITLES = ("kind", "transforms", "reason")


@dataclass(frozen=True, slots=True)
class ModelReport:
    """The content of a report. `facts` are listed at the top; `settings` are documents by title."""

    name: str
    facts: Mapping[str, str]
    measurement: ModelMeasurement
    training_curves: TrainingCurves | None  # None: the job that trained the model is not on this machine
    columns: Sequence[ReportColumn]
    settings: Mapping[str, str]
    command: str


def write_report(directory: Path, report: ModelReport) -> Path:
    """Writes index.html, and its charts as PNGs."""
    measurement = report.measurement
    metrics = {"validation": measurement.validation, "test": measurement.test}
    return html.write_report(
        directory,
        "elasticdl.ctr.report",
        "report.html",
        draw_charts(report),
        report=report,
        measurement=measurement,
        evaluated_rows=f"{measurement.evaluated_on} rows ({measurement.metrics.rows:,})",
        repeats="once" if measurement.importance_repeats == 1 else f"{measurement.importance_repeats} times",
        metric_titles=METRIC_TITLES,
        metric_rows={name: _format_metrics(values) for name, values in metrics.items() if values is not None},
        column_titles=COLUMN_TITLES,
        left_titles=LEFT_TITLES,
        columns=_rank_columns(report.columns),
        format_importance=_format_importance,
    )


def draw_charts(report: ModelReport) -> dict[str, bytes]:
    measurement, curves = report.measurement, report.training_curves
    training = {"training": charts.draw_training(curves, measurement.step)} if curves is not None else {}
    return training | {
        "roc": charts.draw_roc(measurement.roc, measurement.metrics.auc),
        "calibration": charts.draw_calibration(measurement.calibration),
        "probabilities": charts.draw_probabilities(measurement.histogram),
        "importance": charts.draw_importance(measurement.importance),
    }


def _rank_columns(columns: Sequence[ReportColumn]) -> list[ReportColumn]:
    """Sorts by importance; columns that the model does not use come last, in the order of the data."""
    return sorted(columns, key=lambda column: -column.importance.logloss_rise if column.importance else float("inf"))


def _format_metrics(metrics: ClickMetrics) -> list[str]:
    return [
        f"{metrics.rows:,}",
        f"{metrics.clicks:,}",
        f"{metrics.click_rate:.2%}",
        f"{metrics.logloss:.5f}",
        f"{metrics.base_logloss:.5f}",
        _format_or_dash(metrics.gain, ".2%"),
        _format_or_dash(metrics.auc, ".5f"),
        _format_or_dash(metrics.calibration, ".4f"),
    ]


def _format_importance(importance: Importance | None) -> tuple[str, str]:
    if importance is None:
        return "", ""
    return (
        _format_deviation(importance.logloss_rise, importance.logloss_deviation),
        _format_deviation(importance.auc_drop, importance.auc_deviation),
    )


def _format_deviation(value: float | None, deviation: float | None) -> str:
    if value is None:
        return ""
    return f"{value:.5f}" + ("" if deviation is None else f" ± {deviation:.5f}")


def _format_or_dash(value: float | None, form: str) -> str:
    return "–" if value is None else format(value, form)
