"""Initial values of rows. Pure data; the native core computes the values."""

from __future__ import annotations

import math
from typing import Literal, NamedTuple

from pydantic import BaseModel, ConfigDict

InitializerKind = Literal[
    "zeros", "constant", "uniform", "normal", "truncated_normal", "glorot_uniform", "glorot_normal"
]

# The order of the enumeration in native/src/initializer.h.
_NATIVE_KINDS = ("zeros", "constant", "uniform", "normal", "truncated_normal")
# The standard deviation of a unit normal distribution that is truncated at two: Glorot's is divided by it.
_TRUNCATED_DEVIATION = 0.87962566103423978


class NativeInitializer(NamedTuple):
    """The arguments of the native core."""

    kind: int
    low: float
    high: float


class Initializer(BaseModel):
    """Describes initial values. The default is that of Keras for embeddings: uniform between -0.05 and 0.05."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: InitializerKind = "uniform"
    low: float = -0.05  # uniform
    high: float = 0.05
    mean: float = 0.0  # normal, truncated_normal
    deviation: float = 0.05
    value: float = 0.0  # constant

    def to_native(self, columns: int, rows: int | None = None) -> NativeInitializer:
        """Resolves it for a table of this many columns; Glorot's kinds also use the number of rows, if it is known."""
        match self.kind:
            case "zeros":
                return _native_initializer("zeros", 0.0, 0.0)
            case "constant":
                return _native_initializer("constant", self.value, 0.0)
            case "uniform":
                return _native_initializer("uniform", self.low, self.high)
            case "normal" | "truncated_normal":
                return _native_initializer(self.kind, self.mean, self.deviation)
            case "glorot_uniform":
                limit = math.sqrt(6.0 / ((rows or columns) + columns))
                return _native_initializer("uniform", -limit, limit)
            case "glorot_normal":
                deviation = math.sqrt(2.0 / ((rows or columns) + columns)) / _TRUNCATED_DEVIATION
                return _native_initializer("truncated_normal", 0.0, deviation)


def _native_initializer(kind: str, low: float, high: float) -> NativeInitializer:
    return NativeInitializer(_NATIVE_KINDS.index(kind), low, high)
