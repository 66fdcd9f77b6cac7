"""Judges whether the elastic runs of the convergence experiment lie within the spread of the fixed ones."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

AucPoints = tuple[tuple[int, float], ...]  # step and AUC of each evaluation, in order

# From the original's report on its third experiment, on the whole click log.
ORIGINAL_CLAIM = "the original, on the whole click log: best AUC 0.8003 to 0.8008 for all nine runs"
MAX_DEVIATIONS = 2.0  # on either side of the mean
MIN_FIXED_RUNS = 3  # fixed runs needed for a meaningful standard deviation, and for a spread without one of them


@dataclass(frozen=True, slots=True)
class ConvergenceRun:
    """One run: its settings, its evaluations, and the changes of its workers."""

    group: str  # fixed 4, fixed 8, elastic 4-8
    is_elastic: bool
    seed: int
    points: AucPoints
    seconds: float
    updates: int
    max_workers: int  # that trained at the same time
    joined: int = 0
    left: int = 0
    lost: int = 0
    changes: tuple[tuple[int, str], ...] = field(default=())  # step and description of each change

    @property
    def best_auc(self) -> float:
        return max(auc for _, auc in self.points)

    @property
    def last_auc(self) -> float:
        return self.points[-1][1]

    def to_document(self) -> dict[str, Any]:
        return {
            "group": self.group,
            "seed": self.seed,
            "best_auc": self.best_auc,
            "last_auc": self.last_auc,
            "seconds": round(self.seconds, 1),
            "updates": self.updates,
            "workers": {"most": self.max_workers, "joined": self.joined, "left": self.left, "lost": self.lost},
            "changes": [{"step": step, "what": change} for step, change in self.changes],
            "auc": [{"step": step, "auc": auc} for step, auc in self.points],
        }


@dataclass(frozen=True, slots=True)
class Spread:
    mean: float
    minimum: float
    maximum: float

    @classmethod
    def from_values(cls, values: Sequence[float]) -> Spread:
        return cls(float(np.mean(values)), min(values), max(values))

    def contains(self, value: float) -> bool:
        return self.minimum <= value <= self.maximum

    def to_document(self) -> dict[str, float]:
        return {"mean": self.mean, "least": self.minimum, "most": self.maximum, "spread": self.maximum - self.minimum}


@dataclass(frozen=True, slots=True)
class AucBand:
    """The AUC of the fixed runs at each of `steps`: its range, mean and standard deviation."""

    steps: NDArray[np.float64]
    minimum: NDArray[np.float64]
    maximum: NDArray[np.float64]
    mean: NDArray[np.float64]
    deviation: NDArray[np.float64]  # 0 for fewer than MIN_FIXED_RUNS runs, because it would be meaningless


def group_runs(runs: Sequence[ConvergenceRun]) -> dict[str, list[ConvergenceRun]]:
    groups: dict[str, list[ConvergenceRun]] = {}
    for run in runs:
        groups.setdefault(run.group, []).append(run)
    return groups


def fixed_band(runs: Sequence[ConvergenceRun]) -> AucBand:
    """Returns the band of the fixed runs, at the evaluations of the first run that all runs have reached.

    Other runs were evaluated some updates earlier or later, so their values are interpolated linearly.
    """
    low = max(run.points[0][0] for run in runs)
    high = min(run.points[-1][0] for run in runs)
    within = sorted({low, high, *(step for step, _ in runs[0].points if low < step < high)})
    steps = np.array(within, np.float64)
    fixed = np.stack([interpolate_auc(run, steps) for run in runs if not run.is_elastic])
    deviation = fixed.std(axis=0, ddof=1) if len(fixed) >= MIN_FIXED_RUNS else np.zeros(len(steps))
    return AucBand(steps, fixed.min(axis=0), fixed.max(axis=0), fixed.mean(axis=0), deviation)


def interpolate_auc(run: ConvergenceRun, steps: NDArray[np.float64]) -> NDArray[np.float64]:
    run_steps, values = zip(*run.points, strict=True)
    return np.asarray(np.interp(steps, run_steps, values), np.float64)


def judge_elastic_runs(runs: Sequence[ConvergenceRun]) -> dict[str, Any]:
    """Judges whether the elastic runs are inside the spread of the fixed ones, the strictest test first.

    The spread is the range of n runs. Another run of the same kind has a point inside with a probability of only
    (n - 1) / (n + 1), so that "all points" is rarely true even if nothing differs. Therefore each fixed run is judged
    in the same way, by the band of the other ones; and an exact permutation test computes how often randomly chosen
    runs differ as much from the other runs.
    """
    elastic, fixed = ([run for run in runs if run.is_elastic is kind] for kind in (True, False))
    if not elastic or not fixed:
        return {}
    around = fixed_band(runs)
    curves, theirs = (np.stack([interpolate_auc(run, around.steps) for run in group]) for group in (elastic, fixed))
    is_inside = (curves >= around.minimum) & (curves <= around.maximum)
    mean = curves.mean(axis=0)
    mean_inside = (mean >= around.minimum) & (mean <= around.maximum)
    beyond = np.maximum(around.minimum - curves, curves - around.maximum)
    best = Spread.from_values([run.best_auc for run in fixed])
    return {
        "every elastic curve inside the spread": bool(is_inside.all()),
        "mean elastic curve inside the spread": bool(mean_inside.all()),
        "mean of the elastic best AUCs inside": best.contains(float(np.mean([run.best_auc for run in elastic]))),
        "elastic best AUCs inside": f"{sum(best.contains(run.best_auc) for run in elastic)} of {len(elastic)}",
        "points inside": int(is_inside.sum()),
        "points": int(is_inside.size),
        "points above": int((curves > around.maximum).sum()),
        "points below": int((curves < around.minimum).sum()),
        "share inside": float(is_inside.mean()),
        "share expected if nothing differs": (len(fixed) - 1) / (len(fixed) + 1),
        "points of the mean inside": int(mean_inside.sum()),
        "points of the mean": int(mean_inside.size),
        "farthest outside": float(max(beyond.max(), 0.0)),
        "farthest below": float(max((around.minimum - curves).max(), 0.0)),
        **_judge_by_deviations(around, curves),
        **_judge_leaving_one_out(theirs, curves),
        "chance of such a difference of curves by lot": permutation_p_value(
            curves.mean(axis=1).tolist(), theirs.mean(axis=1).tolist()
        ),
        "chance of such a difference of best AUCs by lot": permutation_p_value(
            [run.best_auc for run in elastic], [run.best_auc for run in fixed]
        ),
    }


def _judge_by_deviations(around: AucBand, elastic: NDArray[np.float64]) -> dict[str, Any]:
    """Returns the distances from the mean of the fixed runs, in standard deviations."""
    if not around.deviation.all():
        return {}
    far = np.abs(elastic - around.mean) / around.deviation
    return {
        "every elastic curve within two standard deviations": bool((far <= MAX_DEVIATIONS).all()),
        "points within two standard deviations": int((far <= MAX_DEVIATIONS).sum()),
        "farthest, in standard deviations": float(far.max()),
    }


def _judge_leaving_one_out(fixed: NDArray[np.float64], elastic: NDArray[np.float64]) -> dict[str, float]:
    """Returns the shares of points inside the spread of all fixed runs but one: of that run, and of elastic runs."""
    if len(fixed) < MIN_FIXED_RUNS:
        return {}
    of_fixed, of_elastic = [], []
    for index in range(len(fixed)):
        others = np.delete(fixed, index, axis=0)
        least, highest = others.min(axis=0), others.max(axis=0)
        of_fixed.append(float(((fixed[index] >= least) & (fixed[index] <= highest)).mean()))
        of_elastic.append(float(((elastic >= least) & (elastic <= highest)).mean()))
    return {
        "share of a fixed run inside the others": float(np.mean(of_fixed)),
        "share of an elastic run inside as many": float(np.mean(of_elastic)),
    }


def permutation_p_value(first: Sequence[float], second: Sequence[float]) -> float:
    """Returns the p-value of an exact, two-sided permutation test of the difference of means."""
    every = np.array([*first, *second])

    def differs(subset: Sequence[int]) -> float:
        return abs(float(every[list(subset)].mean() - np.delete(every, subset).mean()))

    seen = differs(range(len(first)))
    ways = [differs(subset) for subset in itertools.combinations(range(len(every)), len(first))]
    return sum(difference >= seen - 1e-12 for difference in ways) / len(ways)


def summarize_best_aucs(runs: Sequence[ConvergenceRun]) -> dict[str, dict[str, float]]:
    return {
        name: Spread.from_values([run.best_auc for run in group]).to_document()
        for name, group in group_runs(runs).items()
    }
