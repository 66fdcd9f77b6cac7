"""Columns whose rows have several values each. The arrays inside are those of NumPy or of torch."""

from __future__ import annotations

from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from elasticdl.features.layout import PADDING


class Ragged(NamedTuple):
    """Row r has `values[splits[r]:splits[r + 1]]`. Text is an Arrow array; all else is NumPy's or torch's."""

    values: Any
    splits: Any  # int64, one more than rows

    def to_list(self) -> list[list[Any]]:
        flat = self.values.to_pylist() if hasattr(self.values, "to_pylist") else self.values.tolist()
        ends = self.splits.tolist()
        return [flat[start:end] for start, end in pairwise(ends)]

    def padded(self, longest: int, fill: int = PADDING) -> NDArray[Any]:
        """NumPy numbers as [rows, longest]: longer rows are cut, shorter ones filled up."""
        splits = np.asarray(self.splits)
        values = np.asarray(self.values)
        if not len(values):
            return np.full((len(splits) - 1, longest), fill, values.dtype)
        at = splits[:-1, np.newaxis] + np.arange(longest)
        found: NDArray[Any] = np.where(at < splits[1:, np.newaxis], values[np.minimum(at, len(values) - 1)], fill)
        return found.astype(values.dtype, copy=False)


class Sparse(NamedTuple):
    """`values[i]` stands at `places[i]` of an array of this shape; places are in order of rows."""

    values: Any
    places: Any  # int64 [values, axes]
    shape: Any

    def to_dense(self, fill: Any = 0) -> NDArray[Any]:
        values = np.asarray(self.values)
        dense = np.full(tuple(self.shape), fill, values.dtype)
        dense[tuple(np.asarray(self.places).T)] = values
        return dense
