"""Numbers to bins."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from elasticdl.errors import DataError
from elasticdl.features import current
from elasticdl.features.transforms.arrays import rounded
from elasticdl.features.transforms.interface import Array, Ops
from elasticdl.features.transforms.transformation import Elementwise

if TYPE_CHECKING:
    from elasticdl.features.statistics import Statistics


@dataclass(frozen=True)
class Discretization(Elementwise):
    """The number of the bin, int64. Bins are closed on the left: bins [0, 1, 2] are (-∞, 0), [0, 1), [1, 2), [2, ∞).

    A float32 is compared with the bins rounded to float32, all else in float64: so a number that stands on a bin's
    edge is in the same bin, whether it comes as float32 or as float64. NaN is in the last bin, as in TensorFlow.

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
        """About `quantiles` bins that are equally full; fewer where a value is so frequent that it fills several."""
        if quantiles < 2:
            raise ValueError(f"Discretization: expected quantiles of 2 or more. Received: {quantiles!r}")
        found = current.column(name, statistics)
        if not found.quantiles:
            raise DataError(
                f"column {name!r}: its statistics have no quantiles; it is a column of numbers that has them"
            )
        steps = len(found.quantiles) - 1
        edges = sorted({found.quantiles[round(steps * number / quantiles)] for number in range(1, quantiles)})
        return cls(edges)

    def num_bins(self) -> int:
        """One more than the edges."""
        return len(self.bins) + 1

    @cached_property
    def tables(self) -> dict[str, NDArray[Any]]:
        return {"double": rounded(self.bins, np.float64), "single": rounded(self.bins, np.float32)}

    def compute(self, ops: Ops, values: Array, tables: Mapping[str, Array]) -> Array:
        if ops.kind(values) == "single":
            return ops.rank(tables["single"], ops.float32(values))
        return ops.rank(tables["double"], ops.float64(values))
