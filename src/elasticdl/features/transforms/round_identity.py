"""Numbers that are ids already."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from elasticdl.errors import DataError
from elasticdl.features import current
from elasticdl.features.transforms.interface import Array, Ops
from elasticdl.features.transforms.transformation import Elementwise, expect_bins

if TYPE_CHECKING:
    from elasticdl.features.statistics import Statistics


@dataclass(frozen=True)
class RoundIdentity(Elementwise):
    """The number rounded to a whole one, int64; `default` where that is not in [0, num_buckets).

    Rounded in float64, halves to the even neighbour: 0.5 is 0, 1.5 and 2.5 are 2. NaN is `default`.

    >>> RoundIdentity(num_buckets=5)([1.2, 1.6, 0.2, 3.1, 4.9, -1.0])
    array([1, 2, 0, 3, 0, 0])
    """

    num_buckets: int
    default: int = 0

    def __post_init__(self) -> None:
        expect_bins("RoundIdentity", "num_buckets", self.num_buckets)

    @classmethod
    def from_statistics(cls, name: str, *, statistics: Statistics | str | Path | None = None) -> RoundIdentity:
        """A bucket for each whole number up to the greatest. DataError for a column with negative numbers."""
        found = current.column(name, statistics)
        if current.number(name, "minimum", found.minimum) < 0:
            raise DataError(f"column {name!r}: expected numbers from 0. Received: {found.minimum} as its minimum")
        return cls(round(current.number(name, "maximum", found.maximum)) + 1)

    def compute(self, ops: Ops, values: Array, tables: Mapping[str, Array]) -> Array:
        rounded = ops.rint(ops.float64(values))
        is_in = (rounded >= 0) & (rounded < self.num_buckets)  # False for NaN
        return ops.where(is_in, ops.int64(ops.where(is_in, rounded, 0.0)), self.default)
