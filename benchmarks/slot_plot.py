"""Pictures of who held the slots of a cluster, and when."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import matplotlib
import numpy as np
from slots import Course

matplotlib.use("Agg")
from matplotlib import pyplot as plt

if TYPE_CHECKING:
    from kube_preemption import Outcome as Day
    from kube_two_jobs import Outcome as Pair

WEB, WORK, STARTING, SECOND, INK = "#e08a2e", "#2f6db3", "#a9c8e8", "#4da48c", "#333333"
_WINDOW_S = 10.0
_STYLE: Any = {
    "font.size": 9, "axes.titlesize": 10, "axes.titlelocation": "left", "axes.spines.top": False,
    "axes.spines.right": False, "axes.edgecolor": "#888888", "text.color": INK, "axes.labelcolor": INK,
    "legend.frameon": False, "axes.grid": True, "axes.grid.axis": "y", "grid.color": "#e6e6e6", "axes.axisbelow": True,
}  # fmt: skip


def preemption(path: Path, day: Day, web: str, title: str, goal: float) -> None:
    with plt.rc_context(_STYLE):
        figure, (held, used, waits) = plt.subplots(
            3, 1, figsize=(9, 7.2), sharex=True, height_ratios=(3, 1.7, 1.3), layout="constrained"
        )
        members, running = day.watched.members(day.job), day.watched.running(day.job)
        layers = {
            "web pods": (day.watched.running(web), WEB),
            "workers that train": (members, WORK),
            "workers that start or leave": (running + _negative(members), STARTING),
        }
        _stack(held, layers, day.begin, day.end)
        held.axhline(day.slots, color=INK, linewidth=0.8)
        held.set(title=title, ylabel="slots", ylim=(0, day.slots * 1.02))
        held.legend(loc="upper center", bbox_to_anchor=(0.5, -0.02), ncols=3)

        for course, name, colour in ((day.running, "pods that run", INK), (day.strict, "strict", WORK)):
            mean = 100 * course.mean(day.begin, day.end) / day.slots
            _line(used, course, day, f"{name}: mean {mean:.1f} %", colour)
        used.axhline(100 * goal, color="#b03030", linewidth=0.8, linestyle="--")
        used.set(ylabel=f"utilisation, %\n(mean of {_WINDOW_S:g} s)", ylim=(50, 104))
        used.legend(loc="lower left", ncols=2)

        created, waited = zip(*day.full_s, strict=True)
        waits.plot(np.array(created) - day.begin, waited, "o", color=WEB, markersize=4, label="above training")
        waits.axhline(
            float(np.median(day.empty_s)), color=INK, linewidth=0.8, linestyle=":", label="empty nodes, median"
        )
        waits.set(ylabel="web pod, created\nto Running, s", xlabel="seconds", ylim=(0, 1.3 * max(waited)))
        waits.legend(loc="upper right", ncols=2)
        _save(figure, path)


def two_jobs(path: Path, outcomes: Mapping[str, Pair], slots: int, wish: int) -> None:
    with plt.rc_context(_STYLE):
        figure, panels = plt.subplots(
            len(outcomes), 1, figsize=(9, 2.9 * len(outcomes)), sharex=True, sharey=True, layout="constrained"
        )
        for panel, (how, pair) in zip(panels, outcomes.items(), strict=True):
            first, second = pair.courses.values()
            _stack(panel, {"first job": (first, WORK), "second job": (second, SECOND)}, pair.begin, pair.end)
            panel.axhline(slots, color=INK, linewidth=0.8)
            submitted, waited = pair.submitted_s[1], pair.waited_s[1]
            _mark(panel, submitted, slots + 2, "second submitted", INK)
            _mark(panel, submitted + waited, slots + 1, f"its first step, {waited:.0f} s later", INK)
            _mark(panel, pair.ended_s[0], slots + 3, f"first ends, {pair.ended_s[0]:.0f} s", WORK)
            _mark(panel, pair.ended_s[1], slots + 3, f"second ends, {pair.ended_s[1]:.0f} s", SECOND)
            panel.set(
                title=f"{how}: each wishes {wish} of {slots} slots; workers that run hold "
                f"{pair.utilisation(pair.running):.0f} % of all slots", ylabel="slots", ylim=(0, slots + 3.2),
                yticks=range(slots + 1),
            )  # fmt: skip
        latest = max(max(pair.ended_s) for pair in outcomes.values())
        panels[-1].set(xlabel="seconds since the first was submitted", xlim=(0, 1.16 * latest))
        panels[-1].legend(loc="center right")
        _save(figure, path)


def _stack(axes: Any, layers: Mapping[str, tuple[Course, str]], begin: float, end: float) -> None:
    """One above the other, exact at every change."""
    moments = _moments([course for course, _ in layers.values()], begin, end)
    heights = [[max(0.0, course.at(at)) for at in moments] for course, _ in layers.values()]
    colours = [colour for _, colour in layers.values()]
    axes.stackplot(np.array(moments) - begin, heights, labels=list(layers), colors=colours, step="post", linewidth=0)
    axes.set_xlim(0, end - begin)


def _line(axes: Any, course: Course, day: Day, label: str, colour: str) -> None:
    moments = np.linspace(day.begin + _WINDOW_S, day.end, 400)
    means = [100 * course.mean(at - _WINDOW_S, at) / day.slots for at in moments]
    axes.plot(moments - day.begin, means, color=colour, linewidth=1.3, label=label)


def _mark(axes: Any, at: float, height: float, text: str, colour: str) -> None:
    """A moment, with its words above the slots."""
    axes.plot([at, at], [0, height], color=colour, linewidth=1.0, linestyle=":" if colour == INK else "-")
    axes.text(at, height, f" {text}", va="top", fontsize=8, color=colour)


def _moments(courses: Sequence[Course], begin: float, end: float) -> list[float]:
    changes = {at for course in courses for at, _ in course.steps if begin < at < end}
    return sorted({begin, end, *changes})


def _negative(course: Course) -> Course:
    return Course((at, -height) for at, height in course.steps)


def _save(figure: Any, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)
    plt.close(figure)
