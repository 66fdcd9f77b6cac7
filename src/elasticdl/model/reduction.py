"""How the parts of a metric become its value. Pure Python: workers compute parts, the master sums and finishes them.

A part is `(values, weight)`: a few numbers and the records they come from. Parts of the same metric add up element by
element, in any order and any grouping. A reduction, known by name, turns the sum into one number. A
metric travels under the key `name` when its reduction is the mean, else under `name|reduction`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

MetricPart: TypeAlias = tuple[Sequence[float], float]

SEPARATOR = "|"
MEAN = "mean"
BAD_ROWS = "bad_rows"  # the metric of a prediction job: rows that were skipped or marked


def mean(values: Sequence[float], weight: float) -> float:
    """The mean; values[0] is a sum over records."""
    return _divide(values[0], weight)


def root_mean(values: Sequence[float], weight: float) -> float:
    """The root mean square, as in RMSE; values[0] is a sum of squares."""
    return math.sqrt(_divide(values[0], weight))


def total(values: Sequence[float], weight: float) -> float:
    return values[0]


def ratio(values: Sequence[float], weight: float) -> float:
    """A ratio; values are numerator and denominator: precision, recall, or a mean per token."""
    return _divide(values[0], values[1])


def perplexity(values: Sequence[float], weight: float) -> float:
    """The perplexity; values are the summed negative log-likelihood and the number of tokens."""
    return math.exp(min(_divide(values[0], values[1]), 700.0))  # e^700 is about the largest float


def f1(values: Sequence[float], weight: float) -> float:
    """The F1 score; values are true positives, false positives and false negatives."""
    true_positives, false_positives, false_negatives = values
    return _divide(2 * true_positives, 2 * true_positives + false_positives + false_negatives)


def auc(values: Sequence[float], weight: float) -> float:
    """The area under the ROC curve; values are two histograms over the score: negatives, then positives.

    A pair in different bins counts by its order, one in the same bin as half.
    """
    bins = len(values) // 2
    negatives, positives = values[:bins], values[bins:]
    below = ordered = 0.0
    for negative, positive in zip(negatives, positives, strict=True):
        ordered += positive * (below + negative / 2)
        below += negative
    return _divide(ordered, below * sum(positives))


REDUCTIONS: dict[str, Callable[[Sequence[float], float], float]] = {
    MEAN: mean,
    "root_mean": root_mean,
    "total": total,
    "ratio": ratio,
    "perplexity": perplexity,
    "f1": f1,
    "auc": auc,
}


def metric_key(name: str, reduction: str) -> str:
    """The key of a metric's parts in messages."""
    return name if reduction == MEAN else f"{name}{SEPARATOR}{reduction}"


def add_parts(left: Mapping[str, MetricPart], right: Mapping[str, MetricPart]) -> dict[str, MetricPart]:
    """The parts of two sets of records together."""
    sums = dict(left)
    for name, (values, weight) in right.items():
        have, have_weight = sums.get(name, ([0.0] * len(values), 0.0))
        sums[name] = ([a + b for a, b in zip(have, values, strict=True)], have_weight + weight)
    return sums


def compute_results(sums: Mapping[str, MetricPart]) -> dict[str, float]:
    """The value of every metric, by its name. NaN if nothing was measured (no records, or only one class)."""
    results = {}
    for full, (values, weight) in sums.items():
        name, _, reduction = full.partition(SEPARATOR)
        results[name] = REDUCTIONS[reduction or MEAN](values, weight)
    return results


def _divide(numerator: float, denominator: float) -> float:
    return numerator / denominator if denominator else math.nan
