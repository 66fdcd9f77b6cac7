"""Statistics of a data set as a figure: a small panel for each column."""

from __future__ import annotations

from datetime import UTC, datetime
from math import ceil
from pathlib import Path
from typing import Any

import numpy as np

from elasticdl import atomic
from elasticdl.features.statistics import ColumnKind, ColumnStatistics, Statistics
from elasticdl.reporting import figures
from elasticdl.reporting.figures import FAINT, INK

NUMBER, TEXT, DATE, LABEL, MISSING = "#2f6fb5", "#3e9a6b", "#8b6fc0", "#d98324", "#d64545"
_COLORS = {ColumnKind.NUMBER: NUMBER, ColumnKind.TEXT: TEXT, ColumnKind.DATE: DATE}
_PANELS_PER_ROW, _HISTOGRAM_BARS, _MAX_TOP_VALUES, _MAX_PANELS = 5, 24, 8, 120


def draw_statistics(statistics: Statistics, path: Path) -> None:
    """Writes the figure to `path`, atomically. It shows the first 120 columns."""
    names = list(statistics.columns)[:_MAX_PANELS]
    down = max(ceil(len(names) / _PANELS_PER_ROW), 1)
    figure = figures.new_figure(3.1 * _PANELS_PER_ROW, 1.0 + 2.1 * down)
    panels = figure.subplots(down, _PANELS_PER_ROW, squeeze=False).flatten()
    for axes, name in zip(panels, names, strict=False):
        _draw_column(axes, name, statistics)
    for axes in panels[len(names) :]:
        axes.set_visible(False)
    left_out = len(statistics.columns) - len(names)
    title = f"{statistics.source}: {statistics.rows:,} rows" + (f", {left_out} more columns" if left_out else "")
    figure.suptitle(figures.escape_text(title), x=0.01, ha="left", color=INK, fontsize=13, fontweight="bold")
    with atomic.open_file(path) as file:
        figure.savefig(file, dpi=100, format="png")


def _draw_column(axes: Any, name: str, statistics: Statistics) -> None:
    column = statistics.columns[name]
    color = LABEL if name == statistics.label else _COLORS[column.kind]
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        axes.spines[side].set_color(FAINT)
    axes.tick_params(colors=INK, labelsize=6.5, length=2)
    axes.set_title(figures.escape_text(figures.shorten(name, 28)), loc="left", fontsize=9, color=INK, fontweight="bold")
    missing = column.missing / statistics.rows
    note = f"{column.distinct:,} distinct" + (f"   {missing:.0%} missing" if column.missing else "")
    axes.set_title(note, loc="right", fontsize=6.5, color=MISSING if missing > 0.5 else FAINT)
    axes.set_yticks([])
    if column.quantiles and column.distinct > _MAX_TOP_VALUES:
        _draw_histogram(axes, column, color)
    elif column.values:
        _draw_top_values(axes, column, statistics.rows - column.missing, color)
    else:
        note = "all missing" if column.missing == statistics.rows else f"no value occurs {column.min_count} times"
        axes.text(0.5, 0.5, note, transform=axes.transAxes, ha="center", va="center", color=FAINT, fontsize=8)
        axes.set_xticks([])


def _draw_histogram(axes: Any, column: ColumnStatistics, color: str) -> None:
    """Draws shares of values in bars of equal width, from the quantiles; logarithmic for a long tail."""
    points = np.array(column.quantiles)
    low, high = points[0], points[-1]
    middle = points[len(points) // 2]
    is_long = column.kind is ColumnKind.NUMBER and high - middle > 20 * max(middle - low, 1e-300)
    scaled = np.arcsinh(points) if is_long else points
    shares, edges = np.histogram(scaled, bins=_HISTOGRAM_BARS)
    axes.bar(edges[:-1], shares / len(points), width=np.diff(edges), align="edge", color=color, alpha=0.85)
    ticks = np.linspace(edges[0], edges[-1], 4)
    values = np.sinh(ticks) if is_long else ticks
    axes.set_xticks(ticks, [_format_value(float(value), column.kind) for value in values])
    if is_long:
        axes.text(0.98, 0.9, "log scale", transform=axes.transAxes, ha="right", color=FAINT, fontsize=6.5)


def _draw_top_values(axes: Any, column: ColumnStatistics, present: int, color: str) -> None:
    values, counts = column.values[:_MAX_TOP_VALUES], column.counts[:_MAX_TOP_VALUES]
    shares = [count / max(present, 1) for count in counts]
    positions = range(len(values))
    axes.barh(positions, shares, color=color, alpha=0.85, height=0.75)
    for position, (value, share) in enumerate(zip(values, shares, strict=True)):
        label = f" {figures.escape_text(figures.shorten(value, 22))}  {share:.1%}"
        axes.text(0, position, label, va="center", ha="left", fontsize=6.5, color=INK)
    axes.set_ylim(max(len(values), 4) - 0.4, -0.6)
    axes.set_xlim(0, max(*shares, 0.01) * 1.05)
    axes.set_xticks([])


def _format_value(value: float, kind: ColumnKind) -> str:
    if kind is ColumnKind.DATE:
        return f"{datetime.fromtimestamp(value, UTC):%Y-%m-%d}"
    return f"{value:.3g}" if abs(value) < 1e4 else f"{value:.1e}".replace("e+0", "e").replace("e+", "e")
