"""Numbers within bounds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
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
class Clip(Elementwise):
    """Numbers below `minimum` become it, those above `maximum` that. NaN stays NaN.

    A float32 is compared with the bounds rounded to float32 and stays one; all else is computed in, and becomes,
    float64.

    >>> Clip(minimum=0, maximum=10)([-5.0, 5.0, 50.0])
    array([ 0.,  5., 10.])
    """

    minimum: float
    maximum: float

    def __post_init__(self) -> None:
        if not self.minimum <= self.maximum:
            raise ValueError(f"Clip: expected minimum <= maximum. Received: {self.minimum!r} and {self.maximum!r}")

    @classmethod
    def from_statistics(
        cls, name: str, *, lower: float = 0.0, upper: float = 0.99, statistics: Statistics | str | Path | None = None
    ) -> Clip:
        """The quantiles `lower` and `upper`: parts of all values, 0 is the least and 1 the greatest."""
        if not 0 <= lower <= upper <= 1:
            raise ValueError(f"Clip: expected 0 <= lower <= upper <= 1. Received: {lower!r} and {upper!r}")
        quantiles = current.column(name, statistics).quantiles
        if not quantiles:
            raise DataError(
                f"column {name!r}: its statistics have no quantiles; it is a column of numbers that has them"
            )
        steps = len(quantiles) - 1
        return cls(quantiles[round(steps * lower)], quantiles[round(steps * upper)])

    @cached_property
    def tables(self) -> dict[str, NDArray[Any]]:
        bounds = self.minimum, self.maximum
        return {"double": rounded(bounds, np.float64), "single": rounded(bounds, np.float32)}

    def compute(self, ops: Ops, values: Array, tables: Mapping[str, Array]) -> Array:
        is_single = ops.kind(values) == "single"
        numbers = ops.float32(values) if is_single else ops.float64(values)
        bounds = tables["single" if is_single else "double"]
        raised = ops.where(numbers < bounds[0], bounds[0], numbers)
        return ops.where(raised > bounds[1], bounds[1], raised)
