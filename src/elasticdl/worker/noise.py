"""How noisy the gradient is, from gradients that are there anyway: those of the logical ranks of a step.

|g|² and the trace of the covariance at one global batch, as AdaScale and Pollux use them ("An empirical model of
large-batch training", appendix A, has the estimator). Pure, in floats: all members of a round and every newcomer
come to the same numbers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

_KEPT = 0.999  # of what was known, over one global batch


class Estimate(NamedTuple):
    """Of one update. Either may be negative: only their mean over many is near the truth."""

    square: float
    variance: float
    is_difference: bool = False  # from gradients one after the other, not beside each other


def of_parts(local: float, total: float, parts: int, scale: float) -> Estimate | None:
    """From `parts` gradients whose mean, weighted by their records, is the update's; None where they do not tell.

    `local` is the mean of their squared norms with the same weights, `total` the squared norm of the mean, `scale` the
    records of all over a global batch. The weights make it exact for parts of different size.
    """
    if parts < 2 or not (math.isfinite(local) and math.isfinite(total)):
        return None
    return Estimate((parts * total - local) / (parts - 1), (local - total) * scale / (parts - 1))


def of_difference(before: float, now: float, product: float, scale: float) -> Estimate | None:
    """From two gradients one after the other, where an update has one part: their squared norms and their product."""
    local, total = (before + now) / 2, (before + now + 2 * product) / 4
    found = of_parts(local, total, 2, 2 * scale)
    return found._replace(is_difference=True) if found else None


@dataclass(slots=True)
class Noise:
    """The estimates, smoothed over some thousand global batches; begins anew where they are made another way."""

    _square: float = 0.0
    _variance: float = 0.0
    _weight: float = 0.0  # of all estimates so far: without it the zeros at the beginning would count
    _is_difference: bool = False

    def knows(self, *, is_difference: bool) -> bool:
        """Whether there is an estimate of this way of making them."""
        return self._weight > 0 and self._is_difference == is_difference

    @property
    def square(self) -> float:
        return max(self._square / self._weight, 0.0) if self._weight else 0.0

    @property
    def variance(self) -> float:
        return max(self._variance / self._weight, 0.0) if self._weight else 0.0

    def take(self, found: Estimate, scale: float) -> None:
        """An estimate that stands for `scale` global batches."""
        if found.is_difference != self._is_difference:
            self._square = self._variance = self._weight = 0.0
            self._is_difference = found.is_difference
        kept = _KEPT**scale
        self._square = kept * self._square + (1 - kept) * found.square
        self._variance = kept * self._variance + (1 - kept) * found.variance
        self._weight = kept * self._weight + (1 - kept)

    def gain(self, scale: float) -> float:
        """How many steps of one global batch an update of `scale` of them is worth: 1 … scale."""
        square, variance = self.square, self.variance
        if square + variance <= 0:
            return 1.0
        return (variance + square) / (variance / scale + square)

    def state(self) -> dict[str, Any]:
        return {
            "square": self._square,
            "variance": self._variance,
            "weight": self._weight,
            "is_difference": self._is_difference,
        }

    @classmethod
    def of(cls, state: Mapping[str, Any]) -> Noise:
        return cls(
            float(state.get("square", 0.0)),
            float(state.get("variance", 0.0)),
            float(state.get("weight", 0.0)),
            bool(state.get("is_difference", False)),
        )
