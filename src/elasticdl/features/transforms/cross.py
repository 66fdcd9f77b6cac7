"""Several columns to one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from elasticdl.errors import DataError
from elasticdl.features.ragged import Ragged, Sparse
from elasticdl.features.transforms.interface import Array, Ops
from elasticdl.features.transforms.transformation import Elementwise, expect_bins

SEPARATOR = "\x1f"
"""Stands between the values: the unit separator of ASCII, so that ("a", "bc") is not ("ab", "c")."""


@dataclass(frozen=True)
class Cross(Elementwise):
    r"""One id for the values of several columns in a row, int64: the fingerprint of their texts, modulo `num_bins`.

    Called with a list of two or more columns of the same shape. The texts are joined by "\x1f", the unit separator of
    ASCII, so that ("a", "bc") is not ("ab", "c"); values that have it inside may meet. Whole numbers and nulls are as
    in `Hashing`. Crossing is value by value, not each with each.

    >>> Cross(num_bins=1000)([["a", "ab"], ["bc", "c"]])
    array([693, 234])
    """

    num_bins: int

    def __post_init__(self) -> None:
        expect_bins("Cross", "num_bins", self.num_bins)

    def on_arrays(self, values: Any) -> Any:
        from elasticdl.features.transforms import columns
        from elasticdl.features.transforms.arrays import OPS

        expect_columns(values)
        known = [columns.known(value) for value in values]
        if any(not _is_alike(known[0], other) for other in known[1:]):
            raise DataError("Cross: expected columns of the same shape, whose rows have as many values each")
        flat, rebuilds = zip(*(columns.flatten(value) for value in known), strict=True)
        return rebuilds[0](self.compute(OPS, list(flat), {}))

    def compute(self, ops: Ops, values: Array, tables: Mapping[str, Array]) -> Array:
        return ops.joined_buckets(values, SEPARATOR, self.num_bins)


def expect_columns(values: Any) -> None:
    if not isinstance(values, list | tuple) or len(values) < 2:
        raise DataError(f"Cross: expected a list of two or more columns. Received: {type(values).__name__}")


def _is_alike(one: Any, other: Any) -> bool:
    if isinstance(one, Ragged) and isinstance(other, Ragged):
        return np.array_equal(one.splits, other.splits)
    if isinstance(one, Sparse) and isinstance(other, Sparse):
        return np.array_equal(one.places, other.places)
    if isinstance(one, Ragged | Sparse) or isinstance(other, Ragged | Sparse):
        return False
    return (
        bool(np.shape(one) == np.shape(other))
        if hasattr(one, "shape") and hasattr(other, "shape")
        else len(one) == len(other)
    )
