"""The charts of a report, each a PNG."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.ticker import MaxNLocator, PercentFormatter

from elasticdl.ctr.report.curves import Points, TrainingCurves
from elasticdl.ctr.report.importance import Importance
from elasticdl.ctr.report.metrics import CalibrationBin, ProbabilityHistogram
from elasticdl.reporting import figures
from elasticdl.reporting.figures import BLUE, FAINT, GREEN, INK, ORANGE, VIOLET

MAX_COLUMNS = 30  # in the chart of importances


def draw_training(curves: TrainingCurves, step: int) -> bytes:
    """Draws loss and evaluations over steps; below, on the same axis, the number of workers.

    A line marks `step`, whose model is reported on.
    """
    figure = figures.new_figure(11, 6.4)
    loss, auc, workers = figure.subplots(3, 1, sharex=True, gridspec_kw={"height_ratios": [2.4, 1.6, 1]})
    for axes in (loss, auc, workers):
        figures.style_axes(axes)
        axes.axvline(step, color=FAINT, linewidth=1.2, linestyle=":", label="this model" if axes is loss else None)
    _draw_line(loss, curves.loss, BLUE, "loss of training batches", linewidth=1.2)
    _draw_line(loss, curves.evaluations.get("logloss", ()), ORANGE, "logloss of validation rows", marker="o")
    _clip_outliers(loss, [*curves.loss, *curves.evaluations.get("logloss", ())])
    loss.set_ylabel("logloss", color=INK)
    loss.legend(frameon=False, fontsize=9, loc="upper right")
    _draw_line(auc, curves.evaluations.get("auc", ()), GREEN, "AUC", marker="o")
    for axes, points, name in ((loss, curves.loss, "loss"), (auc, curves.evaluations.get("auc"), "evaluation")):
        if not points:
            _draw_note(axes, f"no {name} recorded")
    auc.set_ylabel("AUC, validation", color=INK)
    _draw_line(
        workers, _extend_to(curves.workers, curves.last_step), VIOLET, "workers", drawstyle="steps-post", linewidth=1.8
    )
    workers.set_ylabel("workers", color=INK)
    workers.set_ylim(0, max([count for _, count in curves.workers] + [1.0]) * 1.25)
    workers.yaxis.set_major_locator(MaxNLocator(integer=True))
    workers.set_xlabel("step", color=INK)
    workers.set_xlim(0, max(curves.last_step, 1) * 1.02)
    return figures.to_png(figure, "Loss, AUC and workers over steps")


def draw_roc(points: Sequence[tuple[float, float]], auc: float | None) -> bytes:
    figure, axes = _square_axes()
    axes.plot([0, 1], [0, 1], color=FAINT, linewidth=1, linestyle="--", label="random")
    if points:
        across, up = zip(*points, strict=True)
        axes.plot(across, up, color=BLUE, linewidth=1.8, label=f"the model, AUC {auc:.4f}")
        axes.fill_between(across, up, color=BLUE, alpha=0.08)
    else:
        _draw_note(axes, "all labels are the same")
    axes.set_xlim(0, 1)
    axes.set_ylim(0, 1.01)
    axes.set_xlabel("false positive rate", color=INK)
    axes.set_ylabel("true positive rate", color=INK)
    axes.legend(frameon=False, fontsize=9, loc="lower right")
    return figures.to_png(figure, "ROC curve")


def draw_calibration(bins: Sequence[CalibrationBin]) -> bytes:
    """Draws predicted against actual rates with 95 % bounds; below, the number of rows."""
    figure = figures.new_figure(5.6, 5.6)
    axes, counts = figure.subplots(2, 1, sharex=True, gridspec_kw={"height_ratios": [4, 1]})
    figures.style_axes(axes)
    figures.style_axes(counts)
    predicted = np.array([item.predicted for item in bins])
    rates = np.array([item.click_rate for item in bins])
    bounds = (
        np.array([[item.click_rate - item.lower_bound, item.upper_bound - item.click_rate] for item in bins])
        .clip(min=0)
        .T
    )
    limit = max(float(predicted.max()), max(item.upper_bound for item in bins)) * 1.05
    axes.plot([0, limit], [0, limit], color=FAINT, linewidth=1, linestyle="--", label="calibrated")
    axes.errorbar(
        predicted, rates, yerr=bounds, color=BLUE, ecolor=FAINT, elinewidth=1.2, marker="o", markersize=4,
        linewidth=1.4, label="the model, with 95 % bounds",
    )  # fmt: skip
    axes.set_xlim(0, limit)
    axes.set_ylim(0, limit)
    axes.set_ylabel("rate of clicks", color=INK)
    axes.legend(frameon=False, fontsize=9, loc="upper left")
    counts.bar(predicted, [item.rows for item in bins], width=limit / 90, color=BLUE, alpha=0.7)
    counts.set_ylabel("rows", color=INK)
    counts.set_ylim(bottom=0)
    counts.set_xlabel("predicted probability, mean of the bin", color=INK)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(PercentFormatter(1, decimals=None))
    return figures.to_png(figure, "Calibration")


def draw_probabilities(histogram: ProbabilityHistogram) -> bytes:
    """Draws histograms of the probabilities of clicks and of other rows, each as shares of its own rows."""
    figure = figures.new_figure(11, 3.4)
    axes = figure.subplots()
    figures.style_axes(axes)
    edges = np.array(histogram.edges)
    for counts, colour, name in ((histogram.others, FAINT, "other rows"), (histogram.clicks, ORANGE, "clicks")):
        total = sum(counts)
        shares = np.array(counts) / max(total, 1)
        axes.bar(
            edges[:-1], shares, width=np.diff(edges), align="edge", color=colour, alpha=0.6, label=f"{name} ({total:,})"
        )
    axes.set_xlim(0, edges[-1])
    axes.xaxis.set_major_formatter(PercentFormatter(1, decimals=None))
    axes.yaxis.set_major_formatter(PercentFormatter(1, decimals=None))
    axes.set_xlabel("predicted probability", color=INK)
    axes.set_ylabel("share of such rows", color=INK)
    axes.legend(frameon=False, fontsize=9)
    return figures.to_png(figure, "Predicted probabilities by label")


def draw_importance(importances: Sequence[Importance]) -> bytes:
    """Draws the most important columns, the first at the top; whiskers are standard deviations over the repeats."""
    shown = importances[:MAX_COLUMNS]
    figure = figures.new_figure(11, 1.3 + 0.22 * max(len(shown), 3))
    left, right = figure.subplots(1, 2, sharey=True)
    positions = np.arange(len(shown))
    for axes, values, spreads, name in (
        (
            left,
            [item.logloss_rise for item in shown],
            [item.logloss_deviation or 0.0 for item in shown],
            "rise in logloss",
        ),
        (right, [item.auc_drop or 0.0 for item in shown], [item.auc_deviation or 0.0 for item in shown], "drop in AUC"),
    ):
        figures.style_axes(axes)
        axes.grid(visible=False, axis="y")
        axes.barh(positions, values, xerr=spreads, height=0.7, color=BLUE, alpha=0.85, ecolor=INK, error_kw={"lw": 1})
        axes.axvline(0, color=FAINT, linewidth=1)
        axes.set_xlabel(name, color=INK)
    if any(item.auc_drop is None for item in shown):
        _draw_note(right, "all labels are the same")
    left.set_yticks(positions, [figures.escape_text(figures.shorten(item.column, 32)) for item in shown], fontsize=8.5)
    left.set_ylim(len(shown) - 0.4, -0.6)
    which = f", the first {len(shown)} of {len(importances)} columns" if len(importances) > len(shown) else ""
    return figures.to_png(figure, f"Permutation importance{which}")


def _square_axes() -> tuple[Any, Any]:
    figure = figures.new_figure(5.6, 5.6)
    axes = figure.subplots()
    figures.style_axes(axes)
    return figure, axes


def _draw_line(axes: Any, points: Points, colour: str, name: str, **style: Any) -> None:
    if not points:
        return
    steps, values = zip(*points, strict=True)
    axes.plot(steps, values, color=colour, label=name, markersize=4, **style)


def _clip_outliers(axes: Any, points: Sequence[tuple[int, float]]) -> None:
    """Cuts off the first batches if they are so far off that all others would look the same."""
    values = np.array([value for _, value in points])
    if len(values) > 20:
        low, high, top = float(values.min()), float(np.quantile(values, 0.95)), float(values.max())
        if low < high < low + (top - low) / 4:
            axes.set_ylim(low - 0.05 * (high - low), high + 0.25 * (high - low))


def _extend_to(points: Points, last: int) -> Points:
    return (*points, (last, points[-1][1])) if points and points[-1][0] < last else points


def _draw_note(axes: Any, text: str) -> None:
    axes.text(0.5, 0.5, text, transform=axes.transAxes, ha="center", va="center", color=FAINT)
