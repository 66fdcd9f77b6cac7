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
    """Of some rows. What needs both labels, or a click, is None without them."""

    model_config = ConfigDict(frozen=True)

    rows: int
    clicks: int
    logloss: float
    base_logloss: float  # of the rows' own rate of clicks, said of every row: the best that ignores the columns
    auc: float | None
    calibration: float | None  # predicted clicks over clicks

    @property
    def rate(self) -> float:
        return self.clicks / self.rows

    @property
    def gain(self) -> float | None:
        """The part of the base rate's logloss that is gone."""
        return 1 - self.logloss / self.base_logloss if self.base_logloss else None


class CalibrationBin(BaseModel):
    """Rows of similar chances: what was predicted of them on average, and how many clicked, with 95 % bounds."""

    model_config = ConfigDict(frozen=True)

    rows: int
    predicted: float
    clicked: float
    low: float
    high: float


class ProbabilityHistogram(BaseModel):
    """Rows by chance; `edges` has one more than each of the counts."""

    model_config = ConfigDict(frozen=True)

    edges: tuple[float, ...]
    clicked: tuple[int, ...]
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
    """The mean, in double precision; a score however sure costs no infinity."""
    exact = scores.astype(np.float64)
    return float(np.mean(np.logaddexp(0.0, exact) - exact * labels))


def entropy(rate: float) -> float:
    """The logloss of a rate said of every row, where it is right."""
    return float(-sum(part * np.log(part) for part in (rate, 1 - rate) if part > 0))


def auc(scores: Floats, labels: Floats) -> float | None:
    """Exact; a tie counts half. None where all labels are the same."""
    across, up = _full_roc_curve(scores, labels)
    if not len(across):
        return None
    return float(np.sum(np.diff(across) * (up[1:] + up[:-1])) / 2)


def roc_curve(scores: Floats, labels: Floats, points: int = ROC_POINTS) -> tuple[tuple[float, float], ...]:
    """Share of other rows taken for clicks, and of clicks found; at most `points`, evenly along the curve.

    The first is (0, 0), the last (1, 1). Empty where all labels are the same.
    """
    across, up = _full_roc_curve(scores, labels)
    if not len(across):
        return ()
    along = across + up
    kept = np.unique(np.searchsorted(along, np.linspace(0.0, along[-1], points)).clip(max=len(along) - 1))
    return tuple((float(across[one]), float(up[one])) for one in kept)


def calibration_bins(scores: Floats, labels: Floats, bins: int = CALIBRATION_BINS) -> tuple[CalibrationBin, ...]:
    """Bins of as equal size as equal chances allow: those are never parted."""
    said = probabilities(scores)
    edges = np.unique(np.quantile(said, np.linspace(0, 1, bins + 1)[1:-1]))
    which = np.searchsorted(edges, said, side="right")
    counts = np.bincount(which)
    sums, clicks = np.bincount(which, said), np.bincount(which, labels)
    return tuple(
        CalibrationBin(rows=int(n), predicted=total / n, clicked=hits / n, **_wilson_bounds(hits / n, int(n)))
        for n, total, hits in zip(counts, sums.tolist(), clicks.tolist(), strict=True)
        if n
    )


def probability_histogram(scores: Floats, labels: Floats, bars: int = HISTOGRAM_BARS) -> ProbabilityHistogram:
    """From 0 to the highest chance there is."""
    said, clicked = probabilities(scores), labels > 0.5
    edges = np.linspace(0.0, float(said.max()) or 1.0, bars + 1)
    return ProbabilityHistogram(
        edges=tuple(edges.tolist()),
        clicked=tuple(np.histogram(said[clicked], edges)[0].tolist()),
        others=tuple(np.histogram(said[~clicked], edges)[0].tolist()),
    )


def _full_roc_curve(scores: Floats, labels: Floats) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The whole ROC curve, a point for each distinct score and (0, 0); empty where all labels are the same."""
    clicks = float(labels.sum())
    if clicks in (0.0, float(len(labels))):
        return np.empty(0), np.empty(0)
    order = np.argsort(-scores, kind="stable")
    sorted_scores, hits = scores[order], np.cumsum(labels[order], dtype=np.float64)
    last = np.append(np.flatnonzero(np.diff(sorted_scores)), len(scores) - 1)
    up = np.concatenate([[0.0], hits[last] / clicks])
    across = np.concatenate([[0.0], (last + 1 - hits[last]) / (len(labels) - clicks)])
    return across, up


def _wilson_bounds(rate: float, rows: int) -> dict[str, float]:
    """Wilson's, which hold for small numbers, too."""
    middle = (rate + _Z_95**2 / (2 * rows)) / (1 + _Z_95**2 / rows)
    half = _Z_95 * np.sqrt(rate * (1 - rate) / rows + _Z_95**2 / (4 * rows**2)) / (1 + _Z_95**2 / rows)
    return {"low": max(0.0, float(middle - half)), "high": min(1.0, float(middle + half))}
