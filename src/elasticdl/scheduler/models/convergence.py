"""When a job will have converged, by its loss so far (Optimus, EuroSys'18).

The loss after k epochs is taken for 1 / (a·k + b) + c, with a, b, c that are not negative, fitted to losses over the
greatest of them. Points are cut into three parts of equal length; each part weighs four times the one before it, since
the end of the curve says more about its future. A job has converged when the curve falls by less than 0.05 over the
next ten epochs. No job is believed to need more than 100 epochs; one whose curve cannot be fitted is believed to need
20 more.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import least_squares, nnls

from elasticdl.scheduler.interface import Floats

LEAST_POINTS = 3
SMALL_FALL = 0.05  # of the greatest loss …
OVER_EPOCHS = 10  # … over so many epochs
MOST_EPOCHS = 100
UNKNOWN_EPOCHS = 20.0
_SEGMENT_WEIGHT = 4.0
_FLOOR = 1e-6


@dataclass(frozen=True)
class LossCurve:
    """scale · (1 / (a·k + b) + c)."""

    a: float
    b: float
    c: float
    scale: float  # the greatest loss

    def at(self, epochs: ArrayLike) -> Floats:
        result: Floats = self.scale * (1.0 / (self.a * np.asarray(epochs, float) + self.b) + self.c)
        return result

    def converges_at(self) -> int:
        """The first epoch after which it falls too little; at most `MOST_EPOCHS`."""
        epochs = np.arange(MOST_EPOCHS + 1)
        falls = (self.at(epochs) - self.at(epochs + OVER_EPOCHS)) / self.scale
        small = np.flatnonzero(falls < SMALL_FALL)
        return int(small[0]) if len(small) else MOST_EPOCHS


def fit(losses: Sequence[tuple[float, float]]) -> LossCurve | None:
    """To (epoch, loss). None: too few points that are numbers, or the greatest loss is not above 0."""
    points = sorted(
        (epoch, loss) for epoch, loss in losses if math.isfinite(epoch) and math.isfinite(loss) and epoch >= 0
    )
    if len({epoch for epoch, _ in points}) < LEAST_POINTS or max(loss for _, loss in points) <= 0:
        return None
    epochs, values = np.array(points).T
    scale = float(values.max())
    values = values / scale
    weights: Floats = np.power(_SEGMENT_WEIGHT, np.arange(len(values)) * 3 // len(values), dtype=float)

    def errors(curve: Floats) -> Floats:
        missed: Floats = (1.0 / (curve[0] * epochs + curve[1]) + curve[2] - values) * weights
        return missed

    starts = [_start(epochs, values, weights, floor) for floor in np.linspace(0.0, 0.98 * max(values.min(), 0.0), 8)]
    best = min(starts, key=lambda start: float((errors(start) ** 2).sum()))
    limits = ([0.0, _FLOOR, 0.0], [np.inf, np.inf, np.inf])
    found = least_squares(errors, np.maximum(best, [0.0, 2 * _FLOOR, 0.0]), bounds=limits, x_scale="jac")
    a, b, c = (float(one) for one in found.x)
    return LossCurve(a, b, c, scale)


def epochs_left(losses: Sequence[tuple[float, float]]) -> float:
    """Until it has converged, counted from the last epoch; 0: it has."""
    curve = fit(losses)
    if curve is None:
        return UNKNOWN_EPOCHS
    last = max(epoch for epoch, loss in losses if math.isfinite(epoch) and math.isfinite(loss))
    return max(curve.converges_at() - last, 0.0)


def _start(epochs: Floats, values: Floats, weights: Floats, floor: float) -> Floats:
    """With a known c the inverse is a line: a first guess. Weighted as the loss, which the inverse magnifies."""
    above = np.maximum(values - floor, _FLOOR)
    rows = np.stack([epochs, np.ones_like(epochs)], axis=1) * (weights * above**2)[:, None]
    line, _ = nnls(rows, weights * above)
    return np.array([line[0], max(line[1], _FLOOR), floor])
