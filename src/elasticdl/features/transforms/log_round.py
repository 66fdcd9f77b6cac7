"""Numbers to bins that grow by a factor."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from elasticdl.features import current
from elasticdl.features.transforms.interface import Array, Ops
from elasticdl.features.transforms.transformation import Elementwise, expect_bins

if TYPE_CHECKING:
    from elasticdl.features.statistics import Statistics


@dataclass(frozen=True)
class LogRound(Elementwise):
    """The logarithm of a number, rounded: int64; `default` where that is below 0 or not below `num_bins`.

    `base` None is the natural logarithm. It is compared in float64 with the places where the rounded logarithm
    changes, base^(k + 1/2), which are computed once; at such a place the even neighbour is taken. No logarithm is
    taken of a value, because the last bit of one is each library's own. NaN, zero and negative numbers are `default`.

    >>> LogRound(num_bins=16, base=2)([1.2, 1.6, 0.2, 3.1, 100])
    array([0, 1, 0, 2, 7])
    """

    num_bins: int
    default: int = 0
    base: float | None = None

    def __post_init__(self) -> None:
        expect_bins("LogRound", "num_bins", self.num_bins)
        if self.base is not None and not 1 < self.base < math.inf:
            raise ValueError(f"LogRound: expected a base above 1, or None for e. Received: {self.base!r}")

    @classmethod
    def from_statistics(
        cls, name: str, *, base: float | None = None, statistics: Statistics | str | Path | None = None
    ) -> LogRound:
        """As many bins as the greatest number needs."""
        maximum = max(current.number(name, "maximum", current.column(name, statistics).maximum), 1.0)
        return cls(round(math.log(maximum) / math.log(base or math.e)) + 1, base=base)

    @cached_property
    def tables(self) -> dict[str, NDArray[Any]]:
        log = math.log(self.base) if self.base else 1.0
        finite = min(self.num_bins, int(math.log(np.finfo(np.float64).max) / log) + 1)
        edges = np.array([self._edge(number) for number in range(-1, finite)])
        return {"edges": edges[np.isfinite(edges)]}

    def _edge(self, number: int) -> float:
        """The least float64 that is rounded to `number + 1`: base^(number + 1/2) itself where that is even."""
        try:
            edge = math.exp(number + 0.5) if self.base is None else float(self.base) ** (number + 0.5)
        except OverflowError:
            return math.inf
        return edge if number % 2 else math.nextafter(edge, math.inf)

    def compute(self, ops: Ops, values: Array, tables: Mapping[str, Array]) -> Array:
        numbers = ops.float64(values)
        rank = ops.rank(tables["edges"], numbers) - 1
        is_in = (numbers < math.inf) & (rank >= 0) & (rank < self.num_bins)
        return ops.where(is_in, rank, self.default)
