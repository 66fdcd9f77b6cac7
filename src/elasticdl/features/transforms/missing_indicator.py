"""Which values are missing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from elasticdl.features.transforms.interface import Array, Ops
from elasticdl.features.transforms.transformation import Elementwise


@dataclass(frozen=True)
class MissingIndicator(Elementwise):
    """1 where a value is missing and 0 elsewhere, float32.

    NaN and a null are missing among numbers, the empty text and a null among text; `missing_value` too, where it is
    given. A number is compared with it in float64.

    >>> MissingIndicator()([1.5, float("nan"), 0.0])
    array([0., 1., 0.], dtype=float32)
    >>> MissingIndicator(missing_value=-1)([3, -1])
    array([0., 1.], dtype=float32)
    """

    missing_value: float | str | None = None

    def compute(self, ops: Ops, values: Array, tables: Mapping[str, Array]) -> Array:
        if ops.kind(values) == "text":
            is_missing = ops.is_text(values, "")
            if isinstance(self.missing_value, str):
                is_missing = is_missing | ops.is_text(values, self.missing_value)
        else:
            numbers = ops.float64(values)
            is_missing = ops.is_nan(numbers)
            if self.missing_value is not None and not isinstance(self.missing_value, str):
                is_missing = is_missing | (numbers == float(self.missing_value))
        return ops.cast(is_missing, "float32")
