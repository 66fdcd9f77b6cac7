"""Text to numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from elasticdl.features.transforms.interface import Array, Ops
from elasticdl.features.transforms.transformation import Elementwise

TYPES = ("float32", "float64", "int32", "int64")

FLOAT = r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?|[+-]?(inf|Inf|INF|infinity|Infinity)|nan|NaN|NAN"
WHOLE = r"[+-]?[0-9]+"


@dataclass(frozen=True)
class ToNumber(Elementwise):
    """Text as a number of `out_type`: float32, float64, int32 or int64. Text that is blank is `default_value`.

    Numbers are cast: towards zero, and to the nearest end of the range where they are beyond it; NaN is
    `default_value` where the type has none. Text is read as decimal and rounded once, to the nearest number of the
    type; space around it does not matter, text that is no number or beyond the range of a whole type is an error. A
    float that is subnormal is zero.

    >>> ToNumber("float32", default_value=-1)(["1.5", "", " 2e3 "])
    array([ 1.5e+00, -1.0e+00,  2.0e+03], dtype=float32)
    """

    out_type: Any
    default_value: float

    def __post_init__(self) -> None:
        name = self.out_type if isinstance(self.out_type, str) else getattr(self.out_type, "__name__", None)
        name = str(name or getattr(self.out_type, "name", self.out_type)).removeprefix("torch.")
        if name not in TYPES:
            raise ValueError(f"ToNumber: expected an out_type of {', '.join(TYPES)}. Received: {self.out_type!r}")
        object.__setattr__(self, "out_type", name)
        is_number = isinstance(self.default_value, int | float | np.number)
        if not is_number or (self.is_whole and int(self.default_value) != self.default_value):
            raise ValueError(f"ToNumber: expected a default_value that is {name}. Received: {self.default_value!r}")

    @property
    def is_whole(self) -> bool:
        return str(self.out_type).startswith("int")

    @property
    def pattern(self) -> str:
        """Of all text that is a number of the type."""
        return WHOLE if self.is_whole else FLOAT

    def compute(self, ops: Ops, values: Array, tables: Mapping[str, Array]) -> Array:
        kind = ops.kind(values)
        if kind == "text":
            return ops.parsed(values, self)
        if not self.is_whole:
            return ops.float32(values) if self.out_type == "float32" else ops.float64(values)
        bits = 31 if self.out_type == "int32" else 63
        if kind == "whole":
            whole = ops.int64(values)
            if bits == 31:
                whole = ops.where(whole < -(2**31), -(2**31), whole)
                whole = ops.where(whole > 2**31 - 1, 2**31 - 1, whole)
            return ops.cast(whole, self.out_type)
        numbers = ops.float64(values)
        is_in = (numbers >= -(2.0**bits)) & (numbers < 2.0**bits)
        whole = ops.int64(ops.where(is_in, numbers, 0.0))
        whole = ops.where(numbers >= 2.0**bits, 2**bits - 1, whole)
        whole = ops.where(numbers < -(2.0**bits), -(2**bits), whole)
        return ops.cast(ops.where(ops.is_nan(numbers), int(self.default_value), whole), self.out_type)
