"""Draws the utilization and completion times of all policies, and a Gantt chart of one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib import colormaps
from matplotlib.cm import ScalarMappable
from matplotlib.collections import PatchCollection
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle

from elasticdl.reporting import figures
from elasticdl.reporting.figures import COLORS, INK, RED
from elasticdl.sim.results.outcome import SimulationOutcome

WAITING_COLOR = "#dfe3e8"
LINE_STYLES = ("-", "--", "-.", ":")
MAX_BARS = 160  # jobs in a Gantt chart
MAX_CURVE_POINTS = 240  # of a curve of utilization


def draw_utilization(outcomes: Sequence[SimulationOutcome]) -> bytes:
    """Draws the devices in use over time; each point is a mean over its interval."""
    figure, axes = _new_figure(11, 4.2)
    unit, seconds = _choose_time_unit(max((outcome.device_usage[-1][0] for outcome in outcomes), default=0.0))
    for index, outcome in enumerate(outcomes):
        times, shares = _mean_usage(outcome)
        axes.plot(times / seconds, shares * 100, color=_line_color(index), linestyle=_line_style(index), linewidth=1.6)
    axes.set_ylim(0, 103)
    axes.set_xlim(left=0)
    axes.set_ylabel("devices in use, %", color=INK)
    axes.set_xlabel(unit, color=INK)
    _label_lines(axes, outcomes, [f"{outcome.policy}  ({outcome.metrics.utilization:.0%})" for outcome in outcomes])
    return figures.to_png(figure, "Utilization of the cluster")


def draw_completion_times(outcomes: Sequence[SimulationOutcome]) -> bytes:
    """Draws the share of jobs that took at most a given time."""
    figure, axes = _new_figure(11, 4.2)
    times = [sorted(job.jct_s for job in outcome.finished_jobs if job.jct_s is not None) for outcome in outcomes]
    unit, seconds = _choose_time_unit(max((job_times[-1] for job_times in times if job_times), default=0.0))
    for index, job_times in enumerate(times):
        if job_times:
            shares = np.arange(len(job_times) + 1) / len(job_times)
            seconds_from_start = np.array([job_times[0], *job_times]) / seconds
            axes.step(
                seconds_from_start,
                shares * 100,
                where="post",
                color=_line_color(index),
                linestyle=_line_style(index),
                linewidth=1.8,
            )
    if any(times):
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.set_ylim(0, 101)
    axes.set_ylabel("jobs that ended within this time, %", color=INK)
    axes.set_xlabel(f"from submission to end, {unit}", color=INK)
    _label_lines(
        axes, outcomes, [f"{outcome.policy}  (mean {_format_time(outcome.metrics.mean_jct_s)})" for outcome in outcomes]
    )
    return figures.to_png(figure, "Completion times of jobs")


def draw_gantt(outcome: SimulationOutcome) -> bytes:
    """Draws a row per job in order of submission: grey while it waits, darker with more workers."""
    jobs = sorted((*outcome.finished_jobs, *outcome.never_started_jobs), key=lambda job: (job.submitted_at, job.name))
    drawn_jobs = jobs[:MAX_BARS]
    height = 0.24 if len(drawn_jobs) <= 40 else 0.06
    figure, axes = _new_figure(11, max(2.6, 1.6 + height * len(drawn_jobs)))
    max_workers = max((span.workers for job in drawn_jobs for span in job.spans), default=1)
    scale, colormap = LogNorm(1, max(max_workers, 2)), colormaps["viridis_r"]
    end = outcome.device_usage[-1][0]
    unit, seconds = _choose_time_unit(max([job.finished_at or 0.0 for job in drawn_jobs] + [0.0]) or end)
    bars: list[Rectangle] = []
    colors: list[Any] = []
    for row, job in enumerate(drawn_jobs):
        if job.finished_at is not None:
            length = job.finished_at - job.submitted_at
            bars.append(Rectangle((job.submitted_at / seconds, row - 0.4), length / seconds, 0.8))
            colors.append(WAITING_COLOR)
        for span in job.spans:
            bars.append(Rectangle((span.start_s / seconds, row - 0.4), (span.end_s - span.start_s) / seconds, 0.8))
            colors.append(colormap(scale(span.workers)))
        if job.finished_at is None:
            axes.plot(job.submitted_at / seconds, row, marker="x", color=RED, markersize=4)
    axes.add_collection(PatchCollection(bars, facecolors=colors, linewidths=0))
    axes.set_xlim(0, max([bar.get_x() + bar.get_width() for bar in bars] + [1e-3]) * 1.01)
    axes.set_ylim(len(drawn_jobs) - 0.4, -0.6)
    if len(drawn_jobs) <= 40:
        axes.set_yticks(range(len(drawn_jobs)), [job.name for job in drawn_jobs], fontsize=7)
    else:
        axes.set_ylabel("jobs in order of submission", color=INK)
    axes.set_xlabel(unit, color=INK)
    bar = figure.colorbar(ScalarMappable(scale, colormap), ax=axes, pad=0.01, fraction=0.025, aspect=30)
    bar.set_label("workers", color=INK)
    bar.outline.set_visible(False)
    powers = [1 << power for power in range(max(max_workers, 2).bit_length())]
    bar.set_ticks(powers, labels=[str(power_of_two) for power_of_two in powers])
    bar.ax.minorticks_off()
    axes.legend(
        handles=[Patch(color=WAITING_COLOR, label="waits")], loc="lower right", bbox_to_anchor=(1, 1), frameon=False
    )
    limit_note = f", the first {MAX_BARS} of {len(jobs)} jobs" if len(jobs) > MAX_BARS else ""
    return figures.to_png(figure, f"{outcome.policy}: workers of each job over time{limit_note}")


def _mean_usage(outcome: SimulationOutcome) -> tuple[Any, Any]:
    """Returns the mean share of devices in use between consecutive points of time."""
    times = np.array([time_s for time_s, _ in outcome.device_usage])
    used = np.array([devices for _, devices in outcome.device_usage]) / max(outcome.devices, 1)
    if len(times) < 2:
        return times, used
    sums = np.concatenate([[0.0], np.cumsum(np.diff(times) * used[:-1])])
    points = np.linspace(times[0], times[-1], min(MAX_CURVE_POINTS, 4 * len(times)))
    means = np.diff(np.interp(points, times, sums)) / np.diff(points)
    return (points[1:] + points[:-1]) / 2, means


def _new_figure(width: float, height: float) -> tuple[Figure, Any]:
    figure = figures.new_figure(width, height)
    axes = figure.subplots()
    figures.style_axes(axes)
    return figure, axes


def _label_lines(axes: Any, outcomes: Sequence[SimulationOutcome], names: Sequence[str]) -> None:
    lines = axes.get_lines()
    if len(lines) == len(outcomes):
        axes.legend(lines, names, loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False, fontsize=9)


def _choose_time_unit(max_s: float) -> tuple[str, float]:
    if max_s < 600:
        return "seconds", 1.0
    if max_s < 3 * 3600:
        return "minutes", 60.0
    return ("hours", 3600.0) if max_s < 5 * 86400 else ("days", 86400.0)


def _format_time(seconds: float) -> str:
    unit, size = _choose_time_unit(seconds)
    return f"{seconds / size:.3g} {unit if unit in ('hours', 'days') else unit[:-4] if unit == 'minutes' else 's'}"


def _line_color(index: int) -> str:
    return COLORS[index % len(COLORS)]


def _line_style(index: int) -> str:
    return LINE_STYLES[index // len(COLORS) % len(LINE_STYLES)]
