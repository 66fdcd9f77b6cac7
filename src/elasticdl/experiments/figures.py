"""Draws experiments: devices of each job by policy, and the AUC over updates of the convergence runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from elasticdl import atomic
from elasticdl.experiments.convergence.judgment import MAX_DEVIATIONS, ConvergenceRun, fixed_band, group_runs
from elasticdl.experiments.results import MIXED, TWO_JOBS, ExperimentResult, is_service
from elasticdl.reporting import figures
from elasticdl.reporting.figures import COLORS, INK, style_axes

CLAIM_COLOR = figures.RED

JobGroups = Mapping[str, Sequence[str]]
"""The groups of jobs that are drawn as one area each, by their label; the lowest area first."""


def draw_policies(
    path: Path,
    title: str,
    courses: Sequence[ExperimentResult],
    groups: Sequence[JobGroups],
    notes: Sequence[str],
    claims: Mapping[str, tuple[float, str]],
    level: float | None = None,
) -> None:
    """Draws the devices of each group of jobs over time, one panel for each policy.

    `notes` has a text for each course. `claims` are events of the original, by policy: their time and their text.
    `level` is the share of the cluster in use that the original claims.
    """
    figure = figures.new_figure(11, 0.9 + 2.35 * len(courses))
    rows = figure.subplots(len(courses), 1, sharex=True, squeeze=False)[:, 0]
    last = max([result.end_s for result in courses] + [claimed_s for claimed_s, _ in claims.values()])
    for axes, course, grouped, note in zip(rows, courses, groups, notes, strict=True):
        style_axes(axes)
        _draw_areas(axes, course, grouped)
        axes.axhline(course.devices, color=INK, linewidth=1)
        axes.set_ylim(0, course.devices * 1.18)
        axes.set_xlim(0, last * 1.03)
        axes.set_ylabel("devices", color=INK)
        axes.set_title(f"{course.policy}: {note}", loc="left", fontsize=10, color=INK)
        if course.policy in claims:
            claimed_s, text = claims[course.policy]
            axes.axvline(claimed_s, color=CLAIM_COLOR, linestyle="--", linewidth=1.4)
            _annotate(axes, (claimed_s, course.devices * 1.09), text)
        if level is not None:
            axes.axhline(course.devices * level, color=CLAIM_COLOR, linestyle="--", linewidth=1.4)
            _annotate(axes, (last * 1.03, course.devices * 1.08), f"the original: more than {level:.0%} in use")
    rows[-1].set_xlabel("seconds", color=INK)
    handles, names = rows[0].get_legend_handles_labels()
    figure.legend(handles, names, loc="upper right", ncols=len(names), frameon=False, fontsize=9)
    figure.suptitle(title, x=0.01, ha="left", color=INK, fontsize=13, fontweight="bold")
    with atomic.open_file(path) as file:
        figure.savefig(file, dpi=130, format="png")


def _annotate(axes: Any, where: tuple[float, float], text: str) -> None:
    position = {"xytext": (-5, 0), "textcoords": "offset points", "ha": "right", "va": "center"}
    axes.annotate(text, where, **position, color=CLAIM_COLOR, fontsize=8.5)


def _draw_areas(axes: Any, course: ExperimentResult, groups: JobGroups) -> None:
    """Draws areas with a point at every change."""
    edges = {0.0, course.end_s}
    for run in course.runs.values():
        for start, end, _ in run.spans:
            edges |= {start, end}
    times = sorted(edges)
    below = np.zeros(len(times))
    for index, (label, names) in enumerate(groups.items()):
        height = np.array(course.devices_at([name for name in names if name in course.runs], times), float)
        axes.fill_between(
            times,
            below,
            below + height,
            step="post",
            color=COLORS[index % len(COLORS)],
            alpha=0.85,
            linewidth=0,
            label=label,
        )
        below = below + height


LINE_STYLES = ("-", "--", ":", "-.")
RANGE_COLOR, DEVIATIONS_COLOR = "#cbd2d9", "#eceff2"


def draw_convergence(path: Path, title: str, runs: Sequence[ConvergenceRun], notes: Sequence[str]) -> None:
    figure = figures.new_figure(11, 6)
    axes = figure.subplots()
    style_axes(axes)
    if any(not run.is_elastic for run in runs):
        around = fixed_band(runs)
        if around.deviation.all():
            low, high = (around.mean + side * MAX_DEVIATIONS * around.deviation for side in (-1, 1))
            axes.fill_between(
                around.steps, low, high, color=DEVIATIONS_COLOR, linewidth=0, label="two standard deviations"
            )
        axes.fill_between(
            around.steps,
            around.minimum,
            around.maximum,
            color=RANGE_COLOR,
            alpha=0.75,
            linewidth=0,
            label="spread of the fixed",
        )
    for index, (name, group) in enumerate(group_runs(runs).items()):
        for run in group:
            steps, values = zip(*run.points, strict=True)
            axes.plot(
                steps, values,
                color=COLORS[index % len(COLORS)],
                linestyle=LINE_STYLES[run.seed % len(LINE_STYLES)],
                linewidth=2.0 if run.is_elastic else 1.3,
                label=name if run is group[0] else None,
            )  # fmt: skip
    # All curves start alike; the scale shows the part above.
    ordered = sorted(auc for run in runs for _, auc in run.points)
    bottom, top = ordered[len(ordered) // 8], ordered[-1]
    margin = max(top - bottom, 1e-4) / 12
    axes.set_ylim(bottom - margin, top + margin)
    axes.set_xlabel("updates of all workers", color=INK)
    axes.set_ylabel("AUC of the validation rows", color=INK)
    axes.legend(loc="lower right", frameon=False, fontsize=9)
    axes.set_title("\n".join(notes), loc="left", fontsize=9.5, color=INK)
    atomic.write_file(path, figures.to_png(figure, title))


def draw_experiment(
    name: str, results: Sequence[ExperimentResult], notes: Sequence[str], real: bool, path: Path
) -> None:
    """Draws the workers of all jobs over time, one panel for each policy."""
    from elasticdl.experiments import simulation

    claims: dict[str, tuple[float, str]] = {}
    groups: list[Any] = []
    where = "real processes on one machine, scaled down" if real else "simulated, 320 CPUs"
    if name == TWO_JOBS:
        groups = [{"first job": ["first"], "second job": ["second"]} for _ in results]
        for result in results if not real else ():
            claimed_s = simulation.CLAIMED_END_S.get(result.policy, simulation.CLAIMED_ELASTIC_END_S)
            claims[result.policy] = claimed_s, f"the original: {claimed_s:.0f} s"
        title = f"Two jobs that do not fit at once ({where})"
    else:
        for result in results:
            service = [job for job in result.runs if is_service(job)]
            groups.append({"service": service, "training": [job for job in result.runs if job not in service]})
        title = f"Training below an online service ({where})"
    level = simulation.CLAIMED_UTILIZATION if name == MIXED else None
    draw_policies(path, title, results, groups, notes, claims, level)
