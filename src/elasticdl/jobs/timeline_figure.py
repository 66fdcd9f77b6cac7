"""Draws a job's timeline: one bar for each life of a worker, the loss and the speed below."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from elasticdl import atomic
from elasticdl.jobs.timeline import JobTimeline, MetricCurve, WorkerLifetime
from elasticdl.reporting import figures
from elasticdl.reporting.figures import FAINT, INK, PAPER

STARTING, TRAINING, LEFT, PREEMPTED, FAILED = "#cbd2d9", "#3e9a6b", "#8b6fc0", "#d64545", "#7b1e1e"
LOSS, SPEED, MASTER = "#2f6fb5", "#d98324", "#e0a100"
_END_MARKERS = {"left": (LEFT, "o", "left"), "preempted": (PREEMPTED, "X", "lost"), "failed": (FAILED, "X", "failed")}


def draw_figure(story: JobTimeline, path: Path) -> None:
    """Writes the figure to `path`, atomically."""
    rows = max(len(story.worker_lifetimes), 1)
    figure = figures.new_figure(11, 4.2 + 0.34 * rows)
    lives, loss, speed = figure.subplots(
        3, 1, sharex=True, gridspec_kw={"height_ratios": [0.45 + 0.34 * rows, 1.9, 1.3]}
    )
    for axes in (lives, loss, speed):
        figures.style_axes(axes)
        axes.grid(visible=False, axis="y")
        for moment in story.master_restarts:
            axes.axvline(moment - story.started_at, color=MASTER, linewidth=1.2, linestyle=":", zorder=1)
    _draw_workers(lives, story)
    _draw_curve(loss, story.loss, story, LOSS, "loss")
    _draw_metrics(loss, story)
    _draw_curve(speed, story.speed, story, SPEED, "records/s", fill=True)
    _mark_changes((loss, speed), story)
    speed.set_xlabel("seconds since the start", color=INK)
    speed.set_xlim(0, max(story.ended_at - story.started_at, 1e-3) * 1.02)
    figure.suptitle(story.name, x=0.01, ha="left", color=INK, fontsize=14, fontweight="bold")
    with atomic.open_file(path) as file:
        figure.savefig(file, dpi=130, format="png")


def _draw_workers(axes: Any, story: JobTimeline) -> None:
    for row, span in enumerate(story.worker_lifetimes):
        _draw_lifetime(axes, row, span, story)
    axes.set_yticks(range(len(story.worker_lifetimes)), [span.worker for span in story.worker_lifetimes])
    axes.set_ylim(len(story.worker_lifetimes) - 0.4, -0.6)
    axes.spines["left"].set_visible(False)
    axes.tick_params(axis="y", length=0)
    axes.legend(handles=_legend(story), loc="lower right", bbox_to_anchor=(1, 1), ncols=6, frameon=False, fontsize=8.5)


def _draw_lifetime(axes: Any, row: int, span: WorkerLifetime, story: JobTimeline) -> None:
    begin = span.started_at - story.started_at
    end = (span.ended_at if span.ended_at is not None else story.ended_at) - story.started_at
    joined = end if span.joined_at is None else min(span.joined_at - story.started_at, end)
    axes.barh(row, joined - begin, left=begin, height=0.5, color=STARTING, zorder=2)
    axes.barh(row, end - joined, left=joined, height=0.5, color=TRAINING, zorder=2)
    if span.joined_at is not None:
        axes.plot(joined, row, marker=">", color=INK, markersize=6, zorder=4)
    if span.end in _END_MARKERS:
        color, marker, _ = _END_MARKERS[span.end]
        axes.plot(end, row, marker=marker, color=color, markersize=9, markeredgecolor=PAPER, zorder=5, clip_on=False)


def _legend(story: JobTimeline) -> list[Any]:
    handles: list[Any] = [
        Patch(color=STARTING, label="starting"),
        Patch(color=TRAINING, label="training"),
        Line2D([], [], marker=">", color=INK, linestyle="", label="joined"),
    ]
    ends = {span.end for span in story.worker_lifetimes}
    handles += [
        Line2D([], [], marker=marker, color=color, linestyle="", markersize=8, markeredgecolor=PAPER, label=label)
        for end, (color, marker, label) in _END_MARKERS.items()
        if end in ends
    ]
    if story.master_restarts:
        handles.append(Line2D([], [], color=MASTER, linestyle=":", label="master restarted"))
    return handles


def _mark_changes(panels: tuple[Any, ...], story: JobTimeline) -> None:
    """Faint lines through the curves wherever the membership changed."""
    for span in story.worker_lifetimes:
        moments = [
            (span.joined_at, TRAINING),
            (span.ended_at, _END_MARKERS[span.end][0] if span.end in _END_MARKERS else FAINT),
        ]
        for axes in panels:
            for moment, color in moments:
                if moment is not None:
                    axes.axvline(moment - story.started_at, color=color, linewidth=0.9, alpha=0.35, zorder=1)


def _draw_curve(axes: Any, curve: MetricCurve, story: JobTimeline, color: str, label: str, fill: bool = False) -> None:
    axes.set_ylabel(label, color=color)
    if not curve.times:
        axes.text(0.5, 0.5, f"no {label} recorded", transform=axes.transAxes, ha="center", va="center", color=FAINT)
        axes.set_yticks([])
        return
    times = [moment - story.started_at for moment in curve.times]
    axes.plot(times, curve.values, color=color, linewidth=1.6, zorder=3)
    if fill:
        axes.fill_between(times, curve.values, color=color, alpha=0.15, zorder=2)
    # A loss that falls through decades is a line on the floor unless the scale follows it.
    if not fill and min(curve.values) > 0 and max(curve.values) / min(curve.values) > 50:
        axes.set_yscale("log")
    else:
        axes.set_ylim(bottom=0)


def _draw_metrics(axes: Any, story: JobTimeline) -> None:
    """Evaluations between 0 and 1, such as the accuracy, on a scale of their own."""
    curves = {tag: curve for tag, curve in story.metrics.items() if curve.times and _is_fraction(tag, curve)}
    if not curves:
        return
    right_axes = axes.twinx()
    for side in ("top", "left", "bottom"):
        right_axes.spines[side].set_visible(False)
    right_axes.spines["right"].set_color(FAINT)
    right_axes.tick_params(colors=INK, labelsize=9)
    right_axes.set_ylim(0, 1.02)
    for (tag, curve), style in zip(sorted(curves.items()), ("-", "--", ":"), strict=False):
        times = [moment - story.started_at for moment in curve.times]
        label = f"{tag.rpartition('/')[2]} {curve.values[-1]:.3f}"
        right_axes.plot(times, curve.values, color=TRAINING, linestyle=style, marker="o", markersize=4, label=label)
    right_axes.legend(loc="center right", frameon=False, fontsize=8.5)


def _is_fraction(tag: str, curve: MetricCurve) -> bool:
    return "loss" not in tag and "rate" not in tag and all(0.0 <= value <= 1.0 for value in curve.values)
