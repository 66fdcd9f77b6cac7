"""Transforms that give numbers: Clip, MissingIndicator, Normalizer, ToNumber."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from elasticdl.errors import DataError
from elasticdl.features.transforms import current_statistics
from elasticdl.features.transforms.base import ElementwiseTransform
from elasticdl.features.transforms.numpy_ops import round_constant
from elasticdl.features.transforms.ops import Array, Ops

if TYPE_CHECKING:
    from elasticdl.features.statistics import Statistics


@dataclass(frozen=True)
class Clip(ElementwiseTransform):
    """Limits numbers to the range from `minimum` to `maximum`. NaN stays NaN.

    A float32 is compared with the bounds rounded to float32 and stays float32; everything else is computed as
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
        """Uses the quantiles `lower` and `upper` as bounds; 0 is the minimum and 1 the maximum."""
        if not 0 <= lower <= upper <= 1:
            raise ValueError(f"Clip: expected 0 <= lower <= upper <= 1. Received: {lower!r} and {upper!r}")
        quantiles = current_statistics.column_statistics(name, statistics).quantiles
        if not quantiles:
            raise DataError(f"column {name!r}: its statistics have no quantiles; only columns of numbers have them")
        steps = len(quantiles) - 1
        return cls(quantiles[round(steps * lower)], quantiles[round(steps * upper)])

    @cached_property
    def tables(self) -> dict[str, NDArray[Any]]:
        bounds = self.minimum, self.maximum
        return {"double": round_constant(bounds, np.float64), "single": round_constant(bounds, np.float32)}

    def compute(self, ops: Ops, values: Array, tables: Mapping[str, Array]) -> Array:
        is_single = ops.kind(values) == "single"
        numbers = ops.float32(values) if is_single else ops.float64(values)
        bounds = tables["single" if is_single else "double"]
        raised = ops.where(numbers < bounds[0], bounds[0], numbers)
        return ops.where(raised > bounds[1], bounds[1], raised)


@dataclass(frozen=True)
class MissingIndicator(ElementwiseTransform):
    """Returns 1 where a value is missing and 0 elsewhere, float32.

    Missing numbers are NaN and null, missing texts the empty text and null; `missing_value` is missing too, if it
    is given. A number is compared with it in float64.

    >>> MissingIndicator()([1.5, float("nan"), 0.0])
    array([0., 1., 0.], dtype=float32)
    >>> MissingIndicator(missing_value=-1)([3, -1])
    array([0., 1.], dtype=float32)
    """

    missing_value: float | str | None = None

    def compute(self, ops: Ops, values: Array, tables: Mapping[str, Array]) -> Array:
        if ops.kind(values) == "text":
            is_missing = ops.equals_text(values, "")
            if isinstance(self.missing_value, str):
                is_missing = is_missing | ops.equals_text(values, self.missing_value)
        else:
            numbers = ops.float64(values)
            is_missing = ops.is_nan(numbers)
            if self.missing_value is not None and not isinstance(self.missing_value, str):
                is_missing = is_missing | (numbers == float(self.missing_value))
        return ops.cast(is_missing, "float32")


@dataclass(frozen=True)
class Normalizer(ElementwiseTransform):
    """Returns `(x - subtractor) / divisor`, computed in float32.

    The number, the subtractor and the divisor are rounded to float32 first; the difference and the quotient are
    rounded again. NaN stays NaN. A result that is subnormal is zero.

    >>> Normalizer(subtractor=1.0, divisor=2.0)([3, 4, 7])
    array([1. , 1.5, 3. ], dtype=float32)
    """

    subtractor: float
    divisor: float

    def __post_init__(self) -> None:
        if not np.isfinite(round_constant(self.subtractor, np.float32)):
            raise ValueError(
                f"Normalizer: expected a subtractor that is finite in float32. Received: {self.subtractor!r}"
            )
        divisor = round_constant(self.divisor, np.float32)
        if not np.isfinite(divisor) or not divisor:
            raise ValueError(
                f"Normalizer: expected a divisor that is finite and not zero in float32. Received: {self.divisor!r}"
            )

    @classmethod
    def from_statistics(cls, name: str, *, statistics: Statistics | str | Path | None = None) -> Normalizer:
        """Normalizes to mean 0 and deviation 1. A column of a single value is only shifted."""
        column = current_statistics.column_statistics(name, statistics)
        mean = current_statistics.require_number(name, "mean", column.mean)
        return cls(mean, current_statistics.require_number(name, "deviation", column.standard_deviation) or 1.0)

    @cached_property
    def tables(self) -> dict[str, NDArray[Any]]:
        return {
            "subtractor": round_constant(self.subtractor, np.float32),
            "divisor": round_constant(self.divisor, np.float32),
        }

    def compute(self, ops: Ops, values: Array, tables: Mapping[str, Array]) -> Array:
        difference = ops.float32(ops.float32(values) - tables["subtractor"])
        return ops.float32(ops.divide(difference, tables["divisor"]))


NUMBER_TYPES = ("float32", "float64", "int32", "int64")

FLOAT_PATTERN = r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?|[+-]?(inf|Inf|INF|infinity|Infinity)|nan|NaN|NAN"
WHOLE_PATTERN = r"[+-]?[0-9]+"


@dataclass(frozen=True)
class ToNumber(ElementwiseTransform):
    """Converts text to a number of `out_type`: float32, float64, int32 or int64. Blank text is `default_value`.

    Numbers are cast towards zero, and to the nearest end of the range if they are beyond it; NaN is `default_value`
    if the type has none. Text is read as decimal and rounded once, to the nearest number of the
    type; space around it does not matter. Text that is not a number, or beyond the range of a whole type, is an
    error. A float that is subnormal is zero.

    >>> ToNumber("float32", default_value=-1)(["1.5", "", " 2e3 "])
    array([ 1.5e+00, -1.0e+00,  2.0e+03], dtype=float32)
    """

    out_type: Any
    default_value: float

    def __post_init__(self) -> None:
        name = self.out_type if isinstance(self.out_type, str) else getattr(self.out_type, "__name__", None)
        name = str(name or getattr(self.out_type, "name", self.out_type)).removeprefix("torch.")
        if name not in NUMBER_TYPES:
            raise ValueError(
                f"ToNumber: expected an out_type of {', '.join(NUMBER_TYPES)}. Received: {self.out_type!r}"
            )
        object.__setattr__(self, "out_type", name)
        is_number = isinstance(self.default_value, int | float | np.number)
        if not is_number or (self.is_whole and int(self.default_value) != self.default_value):
            raise ValueError(f"ToNumber: expected a default_value that is {name}. Received: {self.default_value!r}")

    @property
    def is_whole(self) -> bool:
        return str(self.out_type).startswith("int")

    @property
    def pattern(self) -> str:
        """The regular expression of texts that are numbers of the type."""
        return WHOLE_PATTERN if self.is_whole else FLOAT_PATTERN

    def compute(self, ops: Ops, values: Array, tables: Mapping[str, Array]) -> Array:
        kind = ops.kind(values)
        if kind == "text":
            return ops.parse_numbers(values, self)
        if not self.is_whole:
            return ops.float32(values) if self.out_type == "float32" else ops.float64(values)
        bits = 31 if self.out_type == "int32" else 63
        if kind == "whole":
            integers = ops.int64(values)
            if bits == 31:
                integers = ops.where(integers < -(2**31), -(2**31), integers)
                integers = ops.where(integers > 2**31 - 1, 2**31 - 1, integers)
            return ops.cast(integers, self.out_type)
        numbers = ops.float64(values)
        is_in = (numbers >= -(2.0**bits)) & (numbers < 2.0**bits)
        integers = ops.int64(ops.where(is_in, numbers, 0.0))
        integers = ops.where(numbers >= 2.0**bits, 2**bits - 1, integers)
        integers = ops.where(numbers < -(2.0**bits), -(2**bits), integers)
        return ops.cast(ops.where(ops.is_nan(numbers), int(self.default_value), integers), self.out_type)
