"""Values to ids, without a vocabulary."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from elasticdl.features import current
from elasticdl.features.transforms.interface import Array, Ops
from elasticdl.features.transforms.transformation import Elementwise, expect_bins

if TYPE_CHECKING:
    from elasticdl.features.statistics import Statistics


@dataclass(frozen=True)
class Hashing(Elementwise):
    """The fingerprint of a value modulo `num_bins`, int64: as TensorFlow's `to_hash_bucket_fast`.

    The fingerprint is FarmHash's Fingerprint64 of the bytes of the text in UTF-8. A whole number is its decimal text
    first: 12 and "12" have one id. A null is the empty text. Floats are refused: they have no one text.

    >>> Hashing(num_bins=3)(["A", "B", "C", "D", "E"])
    array([1, 0, 1, 1, 2])
    """

    num_bins: int

    def __post_init__(self) -> None:
        expect_bins("Hashing", "num_bins", self.num_bins)

    @classmethod
    def from_statistics(
        cls, name: str, *, bins_per_value: float = 1.0, statistics: Statistics | str | Path | None = None
    ) -> Hashing:
        """As many bins as the column has distinct values, times `bins_per_value`: more bins, fewer collisions."""
        return cls(max(1, math.ceil(current.column(name, statistics).distinct * bins_per_value)))

    def compute(self, ops: Ops, values: Array, tables: Mapping[str, Array]) -> Array:
        return ops.buckets(values, self.num_bins)
