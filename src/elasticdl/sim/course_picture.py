"""Courses as a picture: one row a policy, who has how many devices when, and what the original claims."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from elasticdl import drawing, replacement
from elasticdl.drawing import COLOURS, INK, clean
from elasticdl.sim.course import Course

CLAIM = drawing.RED

Groups = Mapping[str, Sequence[str]]
"""Jobs that are drawn as one, by what they are called together; the lowest first."""


def draw(
    path: Path,
    title: str,
    courses: Sequence[Course],
    groups: Sequence[Groups],
    notes: Sequence[str],
    claims: Mapping[str, tuple[float, str]],
    level: float | None = None,
) -> None:
    """`notes`: one a course. `claims`: by policy, when something happened in the original, and what.

    `level`: the share of the cluster that is in use, as the original says.
    """
    figure = drawing.figure(11, 0.9 + 2.35 * len(courses))
    rows = figure.subplots(len(courses), 1, sharex=True, squeeze=False)[:, 0]
    last = max([one.end_s for one in courses] + [at for at, _ in claims.values()])
    for axes, course, grouped, note in zip(rows, courses, groups, notes, strict=True):
        clean(axes)
        _areas(axes, course, grouped)
        axes.axhline(course.devices, color=INK, linewidth=1)
        axes.set_ylim(0, course.devices * 1.18)
        axes.set_xlim(0, last * 1.03)
        axes.set_ylabel("devices", color=INK)
        axes.set_title(f"{course.policy}: {note}", loc="left", fontsize=10, color=INK)
        if course.policy in claims:
            at, what = claims[course.policy]
            axes.axvline(at, color=CLAIM, linestyle="--", linewidth=1.4)
            _write(axes, (at, course.devices * 1.09), what)
        if level is not None:
            axes.axhline(course.devices * level, color=CLAIM, linestyle="--", linewidth=1.4)
            _write(axes, (last * 1.03, course.devices * 1.08), f"the original: more than {level:.0%} in use")
    rows[-1].set_xlabel("seconds", color=INK)
    handles, names = rows[0].get_legend_handles_labels()
    figure.legend(handles, names, loc="upper right", ncols=len(names), frameon=False, fontsize=9)
    figure.suptitle(title, x=0.01, ha="left", color=INK, fontsize=13, fontweight="bold")
    with replacement.of(path) as file:
        figure.savefig(file, dpi=130, format="png")


def _write(axes: Any, where: tuple[float, float], what: str) -> None:
    place = {"xytext": (-5, 0), "textcoords": "offset points", "ha": "right", "va": "center"}
    axes.annotate(what, where, **place, color=CLAIM, fontsize=8.5)


def _areas(axes: Any, course: Course, groups: Groups) -> None:
    """Steps, exact: a point wherever anything changes."""
    edges = {0.0, course.end_s}
    for run in course.runs.values():
        for start, end, _ in run.spans:
            edges |= {start, end}
    times = sorted(edges)
    below = np.zeros(len(times))
    for index, (label, names) in enumerate(groups.items()):
        height = np.array(course.at([name for name in names if name in course.runs], times), float)
        axes.fill_between(
            times,
            below,
            below + height,
            step="post",
            color=COLOURS[index % len(COLOURS)],
            alpha=0.85,
            linewidth=0,
            label=label,
        )
        below = below + height
