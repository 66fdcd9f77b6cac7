"""First values of a row. Pure data; the values themselves come from the native core."""

from __future__ import annotations

import math
from typing import Literal, NamedTuple

from pydantic import BaseModel, ConfigDict

InitializerKind = Literal[
    "zeros", "constant", "uniform", "normal", "truncated_normal", "glorot_uniform", "glorot_normal"
]

# The order of the enumeration in native/src/initializer.h.
_NATIVE_KINDS = ("zeros", "constant", "uniform", "normal", "truncated_normal")
# A normal distribution cut at two deviations has this deviation of its own: Glorot's is divided by it.
_TRUNCATED_DEVIATION = 0.87962566103423978


class NativeInitializer(NamedTuple):
    """What the native core takes."""

    kind: int
    low: float
    high: float


class Initializer(BaseModel):
    """`uniform` is Keras's own default for embeddings: between -0.05 and 0.05."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: InitializerKind = "uniform"
    low: float = -0.05  # uniform
    high: float = 0.05
    mean: float = 0.0  # normal, truncated_normal
    deviation: float = 0.05
    value: float = 0.0  # constant

    def to_native(self, columns: int, rows: int | None = None) -> NativeInitializer:
        """For a table of so many columns; `rows` is its size where it has one, for Glorot's."""
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
