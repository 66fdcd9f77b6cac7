"""Transforms of numbers to bins: Discretization, LogRound, LogSquare, RoundIdentity."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from elasticdl.errors import DataError
from elasticdl.features.transforms import current_statistics
from elasticdl.features.transforms.base import ElementwiseTransform, check_bins
from elasticdl.features.transforms.numpy_ops import round_constant
from elasticdl.features.transforms.ops import Array, Ops

if TYPE_CHECKING:
    from elasticdl.features.statistics import Statistics


@dataclass(frozen=True)
class Discretization(ElementwiseTransform):
    """Returns the number of the bin, int64. Bins are closed on the left.

    Bins [0, 1, 2] are (-∞, 0), [0, 1), [1, 2), [2, ∞).

    A float32 is compared with the bins rounded to float32, everything else in float64, so a number on a bin's edge
    is in the same bin whether it is a float32 or a float64. NaN is in the last bin, as in TensorFlow.

    >>> Discretization([0, 1, 2])([-0.5, 0, 0.5, 1, 2, 100])
    array([0, 1, 1, 2, 3, 3])
    """

    bins: Sequence[float]

    def __post_init__(self) -> None:
        bins = tuple(float(edge) for edge in self.bins)
        if not bins or not np.isfinite(bins).all() or any(left >= right for left, right in pairwise(bins)):
            raise ValueError(f"Discretization: expected bins as rising finite numbers. Received: {list(self.bins)!r}")
        object.__setattr__(self, "bins", bins)

    @classmethod
    def from_statistics(
        cls, name: str, *, quantiles: int = 10, statistics: Statistics | str | Path | None = None
    ) -> Discretization:
        """Makes about `quantiles` equally full bins, and fewer if a value is so frequent that it fills several."""
        if quantiles < 2:
            raise ValueError(f"Discretization: expected quantiles of 2 or more. Received: {quantiles!r}")
        quantile_values = current_statistics.column_statistics(name, statistics).quantiles
        if not quantile_values:
            raise DataError(f"column {name!r}: its statistics have no quantiles; only columns of numbers have them")
        steps = len(quantile_values) - 1
        edges = sorted({quantile_values[round(steps * number / quantiles)] for number in range(1, quantiles)})
        return cls(edges)

    def num_bins(self) -> int:
        """Returns the number of bins: one more than edges."""
        return len(self.bins) + 1

    @cached_property
    def tables(self) -> dict[str, NDArray[Any]]:
        return {"double": round_constant(self.bins, np.float64), "single": round_constant(self.bins, np.float32)}

    def compute(self, ops: Ops, values: Array, tables: Mapping[str, Array]) -> Array:
        if ops.kind(values) == "single":
            return ops.count_not_above(tables["single"], ops.float32(values))
        return ops.count_not_above(tables["double"], ops.float64(values))


@dataclass(frozen=True)
class LogRound(ElementwiseTransform):
    """Returns the rounded logarithm of a number, int64, or `default` if that is below 0 or not below `num_bins`.

    `base` None is the natural logarithm. The number is compared in float64 with the points where the rounded
    logarithm changes, base^(k + 1/2), which are computed once; at such a point the even neighbour is taken. The
    logarithm of a value is never computed, because its last bit differs between libraries. NaN, zero and negative
    numbers are `default`.

    >>> LogRound(num_bins=16, base=2)([1.2, 1.6, 0.2, 3.1, 100])
    array([0, 1, 0, 2, 7])
    """

    num_bins: int
    default_value: int = 0
    base: float | None = None

    def __post_init__(self) -> None:
        check_bins("LogRound", "num_bins", self.num_bins)
        if self.base is not None and not 1 < self.base < math.inf:
            raise ValueError(f"LogRound: expected a base above 1, or None for e. Received: {self.base!r}")

    @classmethod
    def from_statistics(
        cls, name: str, *, base: float | None = None, statistics: Statistics | str | Path | None = None
    ) -> LogRound:
        """Uses as many bins as the largest number needs."""
        maximum = max(
            current_statistics.require_number(
                name, "maximum", current_statistics.column_statistics(name, statistics).maximum
            ),
            1.0,
        )
        return cls(round(math.log(maximum) / math.log(base or math.e)) + 1, base=base)

    @cached_property
    def tables(self) -> dict[str, NDArray[Any]]:
        log = math.log(self.base) if self.base else 1.0
        finite = min(self.num_bins, int(math.log(np.finfo(np.float64).max) / log) + 1)
        edges = np.array([self._edge(number) for number in range(-1, finite)])
        return {"edges": edges[np.isfinite(edges)]}

    def _edge(self, number: int) -> float:
        """Returns the smallest float64 that is rounded to `number + 1`: base^(number + 1/2) itself if that is even."""
        try:
            edge = math.exp(number + 0.5) if self.base is None else float(self.base) ** (number + 0.5)
        except OverflowError:
            return math.inf
        return edge if number % 2 else math.nextafter(edge, math.inf)

    def compute(self, ops: Ops, values: Array, tables: Mapping[str, Array]) -> Array:
        numbers = ops.float64(values)
        rank = ops.count_not_above(tables["edges"], numbers) - 1
        is_in = (numbers < math.inf) & (rank >= 0) & (rank < self.num_bins)
        return ops.where(is_in, rank, self.default_value)


MAX_NUMBER = 2.0**63
MIN_NUMBER = -(2.0**31)
LAST_UNBINNED = 2
"""Numbers above it are binned; other numbers have a bin each."""


@dataclass(frozen=True)
class LogSquare(ElementwiseTransform):
    """Returns `floor(ln(x)²)` for x above 2, int64: bins are fine for small counts and coarse for large ones.

    Each number of 2 and below, including negative ones, has its own bin, as in the recipe of the contest's winners,
    which marked them by a prefix. Here those bins are below zero, where they collide with no other: `floor(x) - 3`,
    so that 2 is -1, 1 is -2, 0 is -3 and -1 is -4. Use `Hashing` or `IndexLookup` after it to make ids of them. NaN
    is `default`.

    It is computed in float64 by comparing with exp(√k), the points where the result changes. Numbers above 2^63
    count as 2^63, below -2^31 as -2^31.

    >>> LogSquare()([3, 4, 10, 100, 1e6, 2, 1, 0, -1])
    array([  1,   1,   5,  21, 190,  -1,  -2,  -3,  -4])
    """

    default_value: int = 0

    @cached_property
    def tables(self) -> dict[str, NDArray[Any]]:
        maximum = int(math.log(MAX_NUMBER) ** 2)
        return {"edges": np.array([math.exp(math.sqrt(number)) for number in range(1, maximum + 1)])}

    def compute(self, ops: Ops, values: Array, tables: Mapping[str, Array]) -> Array:
        numbers = ops.float64(values)
        is_small = numbers <= LAST_UNBINNED
        small = ops.where(is_small, numbers, 0.0)
        small = ops.int64(ops.floor(ops.where(small < MIN_NUMBER, MIN_NUMBER, small))) - (LAST_UNBINNED + 1)
        squares = ops.where(is_small, small, ops.count_not_above(tables["edges"], numbers))
        return ops.where(ops.is_nan(numbers), self.default_value, squares)


@dataclass(frozen=True)
class RoundIdentity(ElementwiseTransform):
    """Rounds to a whole number, int64, or returns `default` if that is not in [0, num_buckets).

    It rounds in float64, halves to the even neighbour: 0.5 is 0, 1.5 and 2.5 are 2. NaN is `default`.

    >>> RoundIdentity(num_buckets=5)([1.2, 1.6, 0.2, 3.1, 4.9, -1.0])
    array([1, 2, 0, 3, 0, 0])
    """

    num_buckets: int
    default_value: int = 0

    def __post_init__(self) -> None:
        check_bins("RoundIdentity", "num_buckets", self.num_buckets)

    @classmethod
    def from_statistics(cls, name: str, *, statistics: Statistics | str | Path | None = None) -> RoundIdentity:
        """Uses a bucket for each whole number up to the maximum. DataError for a column with negative numbers."""
        column = current_statistics.column_statistics(name, statistics)
        if current_statistics.require_number(name, "minimum", column.minimum) < 0:
            raise DataError(f"column {name!r}: expected numbers from 0. Received: {column.minimum} as its minimum")
        return cls(round(current_statistics.require_number(name, "maximum", column.maximum)) + 1)

    def compute(self, ops: Ops, values: Array, tables: Mapping[str, Array]) -> Array:
        rounded = ops.rint(ops.float64(values))
        is_in = (rounded >= 0) & (rounded < self.num_buckets)  # False for NaN
        return ops.where(is_in, ops.int64(ops.where(is_in, rounded, 0.0)), self.default_value)
