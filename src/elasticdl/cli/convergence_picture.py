"""AUC over updates of all runs on one picture: the fixed ones' spread as a band."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from elasticdl import drawing, replacement
from elasticdl.cli.convergence_result import DEVIATIONS, Run, band, groups
from elasticdl.drawing import COLOURS, INK, clean

STROKES = ("-", "--", ":", "-.")
BAND, WIDE = "#cbd2d9", "#eceff2"


def draw(path: Path, title: str, runs: Sequence[Run], notes: Sequence[str]) -> None:
    figure = drawing.figure(11, 6)
    axes = figure.subplots()
    clean(axes)
    if any(not run.is_elastic for run in runs):
        around = band(runs)
        if around.deviation.all():
            low, high = (around.mean + side * DEVIATIONS * around.deviation for side in (-1, 1))
            axes.fill_between(around.steps, low, high, color=WIDE, linewidth=0, label="two standard deviations")
        axes.fill_between(
            around.steps, around.least, around.most, color=BAND, alpha=0.75, linewidth=0, label="spread of the fixed"
        )
    for index, (name, found) in enumerate(groups(runs).items()):
        for run in found:
            steps, values = zip(*run.points, strict=True)
            axes.plot(
                steps, values,
                color=COLOURS[index % len(COLOURS)],
                linestyle=STROKES[run.seed % len(STROKES)],
                linewidth=2.0 if run.is_elastic else 1.3,
                label=name if run is found[0] else None,
            )  # fmt: skip
    # The rise from nothing is the same for all; what matters is above it.
    ordered = sorted(auc for run in runs for _, auc in run.points)
    bottom, top = ordered[len(ordered) // 8], ordered[-1]
    margin = max(top - bottom, 1e-4) / 12
    axes.set_ylim(bottom - margin, top + margin)
    axes.set_xlabel("updates of all workers", color=INK)
    axes.set_ylabel("AUC of the validation rows", color=INK)
    axes.legend(loc="lower right", frameon=False, fontsize=9)
    axes.set_title("\n".join(notes), loc="left", fontsize=9.5, color=INK)
    replacement.write(path, drawing.png(figure, title))
