"""Counts to bins, as the winners of Criteo's contest did."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elasticdl.features.transforms.interface import Array, Ops
from elasticdl.features.transforms.transformation import Elementwise

LARGEST = 2.0**63
SMALLEST = -(2.0**31)
ABOVE = 2
"""Numbers above it are binned, others are themselves."""


@dataclass(frozen=True)
class LogSquare(Elementwise):
    """`floor(ln(x)²)` for x above 2, int64: bins that are fine for small counts and coarse for large ones.

    Numbers of 2 and below, the negative ones too, are each a bin of its own, as in the recipe of the contest's winners,
    which marked them by a prefix. Here those bins lie below zero, where they meet no other: `floor(x) - 3`, so that 2
    is -1, 1 is -2, 0 is -3 and -1 is -4. `Hashing` or `IndexLookup` after it makes ids of them. NaN is `default`.

    Computed in float64 by comparing with exp(√k), the places where the result changes. Numbers above 2^63 count as
    2^63, below -2^31 as -2^31.

    >>> LogSquare()([3, 4, 10, 100, 1e6, 2, 1, 0, -1])
    array([  1,   1,   5,  21, 190,  -1,  -2,  -3,  -4])
    """

    default: int = 0

    @cached_property
    def tables(self) -> dict[str, NDArray[Any]]:
        most = int(math.log(LARGEST) ** 2)
        return {"edges": np.array([math.exp(math.sqrt(number)) for number in range(1, most + 1)])}

    def compute(self, ops: Ops, values: Array, tables: Mapping[str, Array]) -> Array:
        numbers = ops.float64(values)
        is_small = numbers <= ABOVE
        small = ops.where(is_small, numbers, 0.0)
        small = ops.int64(ops.floor(ops.where(small < SMALLEST, SMALLEST, small))) - (ABOVE + 1)
        found = ops.where(is_small, small, ops.rank(tables["edges"], numbers))
        return ops.where(ops.is_nan(numbers), self.default, found)
