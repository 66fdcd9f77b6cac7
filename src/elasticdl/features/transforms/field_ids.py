"""Values of a field to ids of the one table that serves all fields."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from elasticdl.errors import DataError
from elasticdl.features.layout import FIELD_BITS
from elasticdl.features.transforms.interface import Array, Ops
from elasticdl.features.transforms.transformation import Elementwise

MOST_FIELDS = 1 << (63 - FIELD_BITS)


@dataclass(frozen=True)
class FieldIds(Elementwise):
    """`field << 48 | value`, int64: the same value of two fields has two ids.

    A value is taken modulo 2^48. One below zero is padding and stays as it is. Floats and text are refused.

    >>> FieldIds(field=2)([0, 5, -1])
    array([562949953421312, 562949953421317,              -1])
    """

    field: int

    def __post_init__(self) -> None:
        if not isinstance(self.field, int) or not 0 <= self.field < MOST_FIELDS:
            raise ValueError(f"FieldIds: expected a field from 0 to {MOST_FIELDS - 1}. Received: {self.field!r}")

    def compute(self, ops: Ops, values: Array, tables: Mapping[str, Array]) -> Array:
        if ops.kind(values) != "whole":
            raise DataError(
                f"FieldIds: expected whole numbers. Received: {ops.kind(values)}; use Hashing or IndexLookup before"
            )
        whole = ops.int64(values)
        return ops.where(whole < 0, whole, whole % (1 << FIELD_BITS) + (self.field << FIELD_BITS))
