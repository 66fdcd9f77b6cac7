"""Cut points of columns, and values as the numbers of their bins.

Trees compare values with cut points only, so the number of a bin is all that training needs of a value: a byte or two.
XGBoost sketches the cut points of a sample once. After that every part is a matrix of the same bins, whoever has it:
values are read back as the lower ends of their bins, and a reference matrix made of the cut points fixes the rest.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from xgboost import QuantileDMatrix

from elasticdl.boosting.gradients import Floats

Bins = NDArray[np.uint8] | NDArray[np.uint16]


_MARGIN = np.float32(1e-5)


@dataclass(frozen=True, slots=True)
class CutPoints:
    """For each column: a number below its smallest value, the cut points between bins, and one above its largest."""

    starts: NDArray[np.int64]  # of each column in `ends`, and the length of `ends`
    ends: Floats

    @classmethod
    def sketch(cls, rows: Floats, max_bin: int, threads: int, weights: Floats | None = None) -> CutPoints:
        """Those that XGBoost computes of these rows; NaN is a missing value."""
        matrix = QuantileDMatrix(rows, weight=weights, max_bin=max_bin, nthread=threads)
        starts, ends = matrix.get_quantile_cut()
        return cls(np.asarray(starts, np.int64), np.asarray(ends, np.float32))

    @property
    def columns(self) -> int:
        return len(self.starts) - 1

    @property
    def bins(self) -> NDArray[np.int64]:
        """The number of bins of each column."""
        return np.diff(self.starts) - 1

    def make_reference(self, max_bin: int, threads: int) -> QuantileDMatrix:
        """A matrix with these cut points, for the `ref` of others."""
        rows = np.full((int(self.bins.max()) + 1, self.columns), np.nan, np.float32)
        for column in range(self.columns):
            below, above = self.ends[self.starts[column]], self.ends[self.starts[column + 1] - 1]
            if below > 0:
                continue  # the sample had no value of it
            ends = self._lower_ends(column)
            rows[: len(ends), column] = ends
            if _number_above(ends[-1]) != above:  # the largest value is no cut point
                rows[len(ends), column] = _largest_value(above)
        return QuantileDMatrix(rows, max_bin=max_bin, nthread=threads)

    def encode(self, rows: Floats) -> Bins:
        """The number of the bin of each value, one more than the last for a missing one. A column is contiguous."""
        missing = int(self.bins.max())
        numbers: Bins = np.empty(rows.shape, np.uint8 if missing < 256 else np.uint16, order="F")
        for column in range(self.columns):
            values = rows[:, column]
            inner = self._lower_ends(column)[1:]
            numbers[:, column] = np.where(np.isnan(values), missing, np.searchsorted(inner, values, side="right"))
        return numbers

    def decode(self, numbers: Bins) -> Floats:
        """A value of each bin: its lower end, and NaN for a missing value."""
        rows = np.empty(numbers.shape, np.float32)
        table = np.full(int(self.bins.max()) + 1, np.nan, np.float32)
        for column in range(self.columns):
            ends = self._lower_ends(column)
            table[: len(ends)] = ends
            table[len(ends) :] = np.nan
            rows[:, column] = table[numbers[:, column]]
        return rows

    def _lower_ends(self, column: int) -> Floats:
        """The smallest value of each bin, and of the first one a value that XGBoost puts the same number below."""
        ends = self.ends[self.starts[column] : self.starts[column + 1] - 1].copy()
        above = self.ends[self.starts[column + 1] - 1]
        is_constant = len(ends) == 1 and ends[0] == -_MARGIN  # and positive: only what is above says which value
        ends[0] = _largest_value(above) if is_constant else _smallest_value(ends[0])
        return ends


def _number_below(value: np.float32) -> np.float32:
    """The number that XGBoost puts below the smallest value of a column."""
    return np.float32(value - abs(value) - _MARGIN)


def _number_above(value: np.float32) -> np.float32:
    """The number that XGBoost puts above the largest value of a column."""
    return np.float32(value + abs(value) + _MARGIN)


def _smallest_value(below: np.float32) -> np.float32:
    """A value whose `_number_below` this is; 0 for all positive ones."""
    return _find_near(np.float32(min(0.0, float(below + _MARGIN) / 2)), lambda value: _number_below(value) == below)


def _largest_value(above: np.float32) -> np.float32:
    """A value whose `_number_above` this is; 0 for all negative ones."""
    return _find_near(np.float32(max(0.0, float(above - _MARGIN) / 2)), lambda value: _number_above(value) == above)


def _find_near(value: np.float32, is_right: Callable[[np.float32], bool]) -> np.float32:
    neighbours = (np.nextafter(value, np.float32(end)) for end in (-np.inf, np.inf))
    return next((candidate for candidate in (value, *neighbours) if is_right(candidate)), value)
