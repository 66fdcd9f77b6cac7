"""Draws who held the slots of a cluster, and when."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import matplotlib
import numpy as np
from slot_usage import StepFunction

matplotlib.use("Agg")
from matplotlib import pyplot as plt

if TYPE_CHECKING:
    from kube_preemption import DayOutcome
    from kube_two_jobs import TwoJobsOutcome

WEB, TRAINING, STARTING, SECOND, INK = "#e08a2e", "#2f6db3", "#a9c8e8", "#4da48c", "#333333"
_WINDOW_S = 10.0
_STYLE: Any = {
    "font.size": 9, "axes.titlesize": 10, "axes.titlelocation": "left", "axes.spines.top": False,
    "axes.spines.right": False, "axes.edgecolor": "#888888", "text.color": INK, "axes.labelcolor": INK,
    "legend.frameon": False, "axes.grid": True, "axes.grid.axis": "y", "grid.color": "#e6e6e6", "axes.axisbelow": True,
}  # fmt: skip


def draw_preemption(path: Path, outcome: DayOutcome, web: str, title: str, goal: float) -> None:
    with plt.rc_context(_STYLE):
        figure, (slots_panel, utilisation_panel, waiting_panel) = plt.subplots(
            3, 1, figsize=(9, 7.2), sharex=True, height_ratios=(3, 1.7, 1.3), layout="constrained"
        )
        members, running = outcome.watcher.members(outcome.job), outcome.watcher.running(outcome.job)
        layers = {
            "web pods": (outcome.watcher.running(web), WEB),
            "workers that train": (members, TRAINING),
            "workers that start or leave": (running + _negate(members), STARTING),
        }
        _draw_stack(slots_panel, layers, outcome.begin, outcome.end)
        slots_panel.axhline(outcome.slots, color=INK, linewidth=0.8)
        slots_panel.set(title=title, ylabel="slots", ylim=(0, outcome.slots * 1.02))
        slots_panel.legend(loc="upper center", bbox_to_anchor=(0.5, -0.02), ncols=3)

        for usage, name, colour in ((outcome.running, "pods that run", INK), (outcome.strict, "strict", TRAINING)):
            mean = 100 * usage.mean(outcome.begin, outcome.end) / outcome.slots
            _draw_line(utilisation_panel, usage, outcome, f"{name}: mean {mean:.1f} %", colour)
        utilisation_panel.axhline(100 * goal, color="#b03030", linewidth=0.8, linestyle="--")
        utilisation_panel.set(ylabel=f"utilisation, %\n(mean of {_WINDOW_S:g} s)", ylim=(50, 104))
        utilisation_panel.legend(loc="lower left", ncols=2)

        created, waited = zip(*outcome.full_s, strict=True)
        waiting_panel.plot(
            np.array(created) - outcome.begin, waited, "o", color=WEB, markersize=4, label="above training"
        )
        waiting_panel.axhline(
            float(np.median(outcome.empty_s)), color=INK, linewidth=0.8, linestyle=":", label="empty nodes, median"
        )
        waiting_panel.set(ylabel="web pod, created\nto Running, s", xlabel="seconds", ylim=(0, 1.3 * max(waited)))
        waiting_panel.legend(loc="upper right", ncols=2)
        _save(figure, path)


def draw_two_jobs(path: Path, outcomes: Mapping[str, TwoJobsOutcome], slots: int, replicas: int) -> None:
    with plt.rc_context(_STYLE):
        figure, panels = plt.subplots(
            len(outcomes), 1, figsize=(9, 2.9 * len(outcomes)), sharex=True, sharey=True, layout="constrained"
        )
        for panel, (scheduling, outcome) in zip(panels, outcomes.items(), strict=True):
            first, second = outcome.usages.values()
            _draw_stack(
                panel, {"first job": (first, TRAINING), "second job": (second, SECOND)}, outcome.begin, outcome.end
            )
            panel.axhline(slots, color=INK, linewidth=0.8)
            submitted_s, waited_s = outcome.submitted_s[1], outcome.waited_s[1]
            _mark_moment(panel, submitted_s, slots + 2, "second submitted", INK)
            _mark_moment(panel, submitted_s + waited_s, slots + 1, f"its first step, {waited_s:.0f} s later", INK)
            _mark_moment(panel, outcome.ended_s[0], slots + 3, f"first ends, {outcome.ended_s[0]:.0f} s", TRAINING)
            _mark_moment(panel, outcome.ended_s[1], slots + 3, f"second ends, {outcome.ended_s[1]:.0f} s", SECOND)
            panel.set(
                title=f"{scheduling}: each wants {replicas} of {slots} slots; workers that run hold "
                f"{outcome.utilisation(outcome.running):.0f} % of all slots", ylabel="slots", ylim=(0, slots + 3.2),
                yticks=range(slots + 1),
            )  # fmt: skip
        last_end_s = max(max(outcome.ended_s) for outcome in outcomes.values())
        panels[-1].set(xlabel="seconds since the first was submitted", xlim=(0, 1.16 * last_end_s))
        panels[-1].legend(loc="center right")
        _save(figure, path)


def _draw_stack(axes: Any, layers: Mapping[str, tuple[StepFunction, str]], begin: float, end: float) -> None:
    """Stacks the layers, exact at every change."""
    moments = _moments_of_change([usage for usage, _ in layers.values()], begin, end)
    heights = [[max(0.0, usage.value_at(moment)) for moment in moments] for usage, _ in layers.values()]
    colours = [colour for _, colour in layers.values()]
    axes.stackplot(np.array(moments) - begin, heights, labels=list(layers), colors=colours, step="post", linewidth=0)
    axes.set_xlim(0, end - begin)


def _draw_line(axes: Any, usage: StepFunction, outcome: DayOutcome, label: str, colour: str) -> None:
    moments = np.linspace(outcome.begin + _WINDOW_S, outcome.end, 400)
    means = [100 * usage.mean(moment - _WINDOW_S, moment) / outcome.slots for moment in moments]
    axes.plot(moments - outcome.begin, means, color=colour, linewidth=1.3, label=label)


def _mark_moment(axes: Any, moment: float, height: float, text: str, colour: str) -> None:
    """Marks a moment, with a text above the slots."""
    axes.plot([moment, moment], [0, height], color=colour, linewidth=1.0, linestyle=":" if colour == INK else "-")
    axes.text(moment, height, f" {text}", va="top", fontsize=8, color=colour)


def _moments_of_change(usages: Sequence[StepFunction], begin: float, end: float) -> list[float]:
    changes = {moment for usage in usages for moment, _ in usage.steps if begin < moment < end}
    return sorted({begin, end, *changes})


def _negate(usage: StepFunction) -> StepFunction:
    return StepFunction((moment, -height) for moment, height in usage.steps)


def _save(figure: Any, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)
    plt.close(figure)
