"""Compares a data set with the statistics a model was trained on. Pure."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import log

from elasticdl.features.statistics import ColumnKind, ColumnStatistics, Statistics

_MIN_SHARE = 1e-4
_BINS = 10
_TOP = 20


@dataclass(frozen=True, slots=True)
class DriftThresholds:
    """The limits of change that is not reported. All are shares of rows except `stability_index`."""

    missing: float = 0.1  # change of the share of missing values
    stability_index: float = 0.2  # population stability index; above 0.2 is commonly taken as a large change
    unknown: float = 0.1  # change of the share of values out of the vocabulary
    outside: float = 0.02  # numbers outside the range seen before
    label: float = 0.3  # relative change of the label's mean


@dataclass(frozen=True, slots=True)
class DriftFinding:
    """One difference from before. A severe one makes what a model computes wrong or useless."""

    column: str
    message: str
    is_severe: bool = True

    def __str__(self) -> str:
        return f"{self.column}: {self.message}"


def find_drift(before: Statistics, now: Statistics, thresholds: DriftThresholds | None = None) -> list[DriftFinding]:
    """Returns what has drifted, in the order of the columns. Differences that chance explains are not reported."""
    limits = thresholds or DriftThresholds()
    findings: list[DriftFinding] = []
    for name, column in before.columns.items():
        if name not in now.columns:
            findings.append(DriftFinding(name, "the column is missing", is_severe=name != before.label))
            continue
        findings += [
            DriftFinding(name, message)
            for message in _differences(column, now.columns[name], before, now, limits, name)
        ]
    findings += [
        DriftFinding(name, "a new column, without a transform", is_severe=False)
        for name in now.columns
        if name not in before.columns
    ]
    return findings


def _differences(
    before: ColumnStatistics,
    now: ColumnStatistics,
    old: Statistics,
    new: Statistics,
    limits: DriftThresholds,
    name: str,
) -> Iterator[str]:
    was, present = old.rows - before.missing, new.rows - now.missing
    missing, gone = before.missing / old.rows, now.missing / new.rows
    if abs(gone - missing) > limits.missing + _noise(missing, new.rows):
        yield f"{gone:.1%} missing, before {missing:.1%}"
    if not was or not present:
        return
    if now.kind is not before.kind:
        shown = ", ".join(repr(value) for value in now.exception_examples or now.values[:3])
        yield f"{now.kind} such as {shown}, before {before.kind}" if shown else f"{now.kind}, before {before.kind}"
        return
    if name == old.label and before.mean and now.mean is not None:
        change = abs(now.mean - before.mean) / before.mean
        if change > limits.label + _noise(before.mean, present) / before.mean:
            yield f"the label is 1 in {now.mean:.2%}, before {before.mean:.2%}"
        return
    if before.quantiles and now.quantiles:
        yield from _distribution_drift(before, now, was, present, limits)
    if before.values and before.kind is ColumnKind.TEXT:
        yield from _vocabulary_drift(before, now, was, present, limits)


def _distribution_drift(
    before: ColumnStatistics, now: ColumnStatistics, was: int, present: int, limits: DriftThresholds
) -> Iterator[str]:
    last = len(before.quantiles) - 1
    edges = sorted({before.quantiles[round(step * last / _BINS)] for step in range(1, _BINS)})
    index = stability_index(bin_shares(before.quantiles, edges), bin_shares(now.quantiles, edges), min(was, present))
    if index > limits.stability_index + index_noise(len(edges) + 1, was, present):
        middle = len(now.quantiles) // 2
        yield (
            f"another distribution: half are up to {now.quantiles[middle]:g}, before "
            f"{before.quantiles[len(before.quantiles) // 2]:g} "
            f"(stability index {index:.2f}, limit {limits.stability_index:g})"
        )
    low, high = before.quantiles[0], before.quantiles[-1]
    points = sorted(now.quantiles)
    outside = (bisect_left(points, low) + len(points) - bisect_right(points, high)) / len(points)
    if outside > limits.outside + _noise(limits.outside, present):
        yield f"{outside:.0%} are outside {low:g} … {high:g}, the range before"


def _vocabulary_drift(
    before: ColumnStatistics, now: ColumnStatistics, was: int, present: int, limits: DriftThresholds
) -> Iterator[str]:
    counts = dict(zip(now.values, now.counts, strict=True))
    # A sequence has several values in a row.
    all_now = max(present, sum(now.counts)) if now.separator else present
    all_before = max(was, sum(before.counts)) if before.separator else was
    known_share = sum(counts.get(value, 0) for value in before.values) / all_now
    unknown, expected = 1 - known_share, 1 - sum(before.counts) / all_before
    if unknown - expected > limits.unknown + _noise(expected, present):
        yield f"{unknown:.1%} of the values are out of the vocabulary, before {expected:.1%}"
    top = before.values[:_TOP]
    old = [count / all_before for count in before.counts[: len(top)]]
    new = [counts.get(value, 0) / all_now for value in top]
    index = stability_index([*old, max(1 - sum(old), 0.0)], [*new, max(1 - sum(new), 0.0)], min(was, present))
    if index > limits.stability_index + index_noise(len(top) + 1, was, present):
        yield f"its values have other frequencies (stability index {index:.2f}, limit {limits.stability_index:g})"


def bin_shares(quantiles: Sequence[float], edges: Sequence[float]) -> list[float]:
    """Returns the shares of values up to the first edge, between edges, and above the last, from quantiles."""
    ordered = sorted(quantiles)
    upto = [bisect_right(ordered, edge) / len(ordered) for edge in edges]
    return [high - low for low, high in zip([0.0, *upto], [*upto, 1.0], strict=True)]


def stability_index(before: Sequence[float], now: Sequence[float], rows: int) -> float:
    """Returns the sum of (q - p) ln(q / p). A share of zero counts as half a row."""
    smallest = max(_MIN_SHARE, 0.5 / rows)
    floored = [(max(p, smallest), max(q, smallest)) for p, q in zip(before, now, strict=True)]
    return sum((q - p) * log(q / p) for p, q in floored)


def index_noise(bins: int, before: int, now: int) -> float:
    """Three times what chance alone makes of the index, on average."""
    return 3 * (bins - 1) * (1 / before + 1 / now)


def _noise(share: float, rows: int) -> float:
    """Three standard errors of a share."""
    return 3 * (max(share * (1 - share), 0.0) / rows) ** 0.5 if rows else 1.0
