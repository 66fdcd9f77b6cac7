"""Metrics of a CTR model from its scores and labels: logloss, AUC, ROC curve, calibration. A score is a logit. Pure."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict

Floats = NDArray[np.floating[Any]]

ROC_POINTS = 400
CALIBRATION_BINS = 20
HISTOGRAM_BARS = 40
_Z_95 = 1.96  # standard deviations within which 95 of 100 fall


class ClickMetrics(BaseModel):
    """Metrics of some rows. A metric that needs both labels, or a click, is None without them."""

    model_config = ConfigDict(frozen=True)

    rows: int
    clicks: int
    logloss: float
    base_logloss: float  # of predicting the rows' own click rate for every row
    auc: float | None
    calibration: float | None  # predicted clicks over clicks

    @property
    def click_rate(self) -> float:
        return self.clicks / self.rows

    @property
    def gain(self) -> float | None:
        """The share of the base logloss that the model removes."""
        return 1 - self.logloss / self.base_logloss if self.base_logloss else None


class CalibrationBin(BaseModel):
    """Rows of similar probabilities: the mean prediction, and the click rate with its 95 % bounds."""

    model_config = ConfigDict(frozen=True)

    rows: int
    predicted: float
    click_rate: float
    lower_bound: float
    upper_bound: float


class ProbabilityHistogram(BaseModel):
    """Counts of rows by probability; `edges` has one more element than each of the counts."""

    model_config = ConfigDict(frozen=True)

    edges: tuple[float, ...]
    clicks: tuple[int, ...]
    others: tuple[int, ...]


def compute_metrics(scores: Floats, labels: Floats) -> ClickMetrics:
    clicks, rows = int(labels.sum()), len(labels)
    predicted = float(probabilities(scores).sum())
    return ClickMetrics(
        rows=rows,
        clicks=clicks,
        logloss=logloss(scores, labels),
        base_logloss=entropy(clicks / rows),
        auc=auc(scores, labels),
        calibration=predicted / clicks if clicks else None,
    )


def probabilities(scores: Floats) -> NDArray[np.float64]:
    return np.exp(-np.logaddexp(0.0, -scores.astype(np.float64)))


def logloss(scores: Floats, labels: Floats) -> float:
    """Returns the mean in double precision; it is finite for every finite score."""
    exact = scores.astype(np.float64)
    return float(np.mean(np.logaddexp(0.0, exact) - exact * labels))


def entropy(rate: float) -> float:
    """Returns the logloss of predicting a rate for every row, if the rate is right."""
    return float(-sum(part * np.log(part) for part in (rate, 1 - rate) if part > 0))


def auc(scores: Floats, labels: Floats) -> float | None:
    """Returns the exact AUC, where a tie counts half, or None if all labels are the same."""
    false_rates, true_rates = _full_roc_curve(scores, labels)
    if not len(false_rates):
        return None
    return float(np.sum(np.diff(false_rates) * (true_rates[1:] + true_rates[:-1])) / 2)


def roc_curve(scores: Floats, labels: Floats, points: int = ROC_POINTS) -> tuple[tuple[float, float], ...]:
    """Returns false and true positive rates, at most `points` of them, evenly along the curve.

    The first is (0, 0), the last (1, 1). The curve is empty if all labels are the same.
    """
    false_rates, true_rates = _full_roc_curve(scores, labels)
    if not len(false_rates):
        return ()
    along = false_rates + true_rates
    selected = np.unique(np.searchsorted(along, np.linspace(0.0, along[-1], points)).clip(max=len(along) - 1))
    return tuple((float(false_rates[index]), float(true_rates[index])) for index in selected)


def calibration_bins(scores: Floats, labels: Floats, bins: int = CALIBRATION_BINS) -> tuple[CalibrationBin, ...]:
    """Returns bins of about equal size; rows with equal probabilities stay together."""
    predicted = probabilities(scores)
    edges = np.unique(np.quantile(predicted, np.linspace(0, 1, bins + 1)[1:-1]))
    bin_indices = np.searchsorted(edges, predicted, side="right")
    counts = np.bincount(bin_indices)
    sums, clicks = np.bincount(bin_indices, predicted), np.bincount(bin_indices, labels)
    return tuple(
        CalibrationBin(rows=int(n), predicted=total / n, click_rate=hits / n, **_wilson_bounds(hits / n, int(n)))
        for n, total, hits in zip(counts, sums.tolist(), clicks.tolist(), strict=True)
        if n
    )


def probability_histogram(scores: Floats, labels: Floats, bars: int = HISTOGRAM_BARS) -> ProbabilityHistogram:
    """Counts rows in bars of equal width, from 0 to the highest probability."""
    predicted, is_click = probabilities(scores), labels > 0.5
    edges = np.linspace(0.0, float(predicted.max()) or 1.0, bars + 1)
    return ProbabilityHistogram(
        edges=tuple(edges.tolist()),
        clicks=tuple(np.histogram(predicted[is_click], edges)[0].tolist()),
        others=tuple(np.histogram(predicted[~is_click], edges)[0].tolist()),
    )


def _full_roc_curve(scores: Floats, labels: Floats) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Returns the whole ROC curve: (0, 0) and a point for each distinct score; empty if all labels are the same."""
    clicks = float(labels.sum())
    if clicks in (0.0, float(len(labels))):
        return np.empty(0), np.empty(0)
    order = np.argsort(-scores, kind="stable")
    sorted_scores, hits = scores[order], np.cumsum(labels[order], dtype=np.float64)
    last = np.append(np.flatnonzero(np.diff(sorted_scores)), len(scores) - 1)
    true_rates = np.concatenate([[0.0], hits[last] / clicks])
    false_rates = np.concatenate([[0.0], (last + 1 - hits[last]) / (len(labels) - clicks)])
    return false_rates, true_rates


def _wilson_bounds(rate: float, rows: int) -> dict[str, float]:
    """Returns Wilson's bounds, which hold for small numbers, too."""
    middle = (rate + _Z_95**2 / (2 * rows)) / (1 + _Z_95**2 / rows)
    half = _Z_95 * np.sqrt(rate * (1 - rate) / rows + _Z_95**2 / (4 * rows**2)) / (1 + _Z_95**2 / rows)
    return {"lower_bound": max(0.0, float(middle - half)), "upper_bound": min(1.0, float(middle + half))}
