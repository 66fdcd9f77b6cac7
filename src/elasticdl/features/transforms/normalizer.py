"""Numbers around zero."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from elasticdl.features import current
from elasticdl.features.transforms.arrays import rounded
from elasticdl.features.transforms.interface import Array, Ops
from elasticdl.features.transforms.transformation import Elementwise

if TYPE_CHECKING:
    from elasticdl.features.statistics import Statistics


@dataclass(frozen=True)
class Normalizer(Elementwise):
    """`(x - subtractor) / divisor`, computed in float32.

    The number, the subtractor and the divisor are rounded to float32 first; the difference and the quotient are
    rounded again. NaN stays NaN. A result that is subnormal is zero.

    >>> Normalizer(subtractor=1.0, divisor=2.0)([3, 4, 7])
    array([1. , 1.5, 3. ], dtype=float32)
    """

    subtractor: float
    divisor: float

    def __post_init__(self) -> None:
        if not np.isfinite(rounded(self.subtractor, np.float32)):
            raise ValueError(
                f"Normalizer: expected a subtractor that is finite in float32. Received: {self.subtractor!r}"
            )
        divisor = rounded(self.divisor, np.float32)
        if not np.isfinite(divisor) or not divisor:
            raise ValueError(
                f"Normalizer: expected a divisor that is finite and not zero in float32. Received: {self.divisor!r}"
            )

    @classmethod
    def from_statistics(cls, name: str, *, statistics: Statistics | str | Path | None = None) -> Normalizer:
        """Mean 0 and deviation 1. A column of a single value is only shifted."""
        found = current.column(name, statistics)
        mean = current.number(name, "mean", found.mean)
        return cls(mean, current.number(name, "deviation", found.deviation) or 1.0)

    @cached_property
    def tables(self) -> dict[str, NDArray[Any]]:
        return {"subtractor": rounded(self.subtractor, np.float32), "divisor": rounded(self.divisor, np.float32)}

    def compute(self, ops: Ops, values: Array, tables: Mapping[str, Array]) -> Array:
        difference = ops.float32(ops.float32(values) - tables["subtractor"])
        return ops.float32(ops.quotient(difference, tables["divisor"]))
