"""The operations that transforms are written in, with the same bits as result in NumPy, TensorFlow and torch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, Protocol

if TYPE_CHECKING:
    from elasticdl.features.transforms.categorical import IndexLookup
    from elasticdl.features.transforms.date_parts import DateParts
    from elasticdl.features.transforms.numeric import ToNumber

Array = Any
"""An array of NumPy, TensorFlow or torch; text is an Arrow array or a tensor of TensorFlow."""

ValueKind = Literal["text", "single", "double", "whole"]
"""Text, floats of at most 32 bits, floats of 64 bits, whole numbers (booleans among them)."""


class Ops(Protocol):
    """One implementation for each framework."""

    def kind(self, values: Array) -> ValueKind: ...
    def float32(self, numbers: Array) -> Array: ...
    def float64(self, numbers: Array) -> Array: ...
    def int64(self, numbers: Array) -> Array:
        """Rounds towards zero. The result is defined for numbers between -2^63 and 2^63 only."""

    def cast(self, numbers: Array, name: str) -> Array:
        """Converts to a type by its name; to int32 under the same condition as `int64`."""

    def where(self, condition: Array, if_true: Array | float, if_false: Array | float) -> Array: ...
    def is_nan(self, floats: Array) -> Array: ...
    def rint(self, floats: Array) -> Array: ...
    def floor(self, floats: Array) -> Array: ...
    def divide(self, floats: Array, by: Array) -> Array:
        """Divides with one rounding; `by` is not zero."""

    def count_not_above(self, table: Array, numbers: Array) -> Array:
        """Counts the values of the sorted table that are not above each number, int64; all of them for NaN."""

    def equals_text(self, texts: Array, text: str) -> Array: ...
    def stack(self, columns: list[Array]) -> Array:
        """Stacks along a new last axis."""

    # These take text or whole numbers; a whole number stands for its decimal text.
    def hash_buckets(self, values: Array, bins: int) -> Array: ...
    def hash_joined_buckets(self, columns: list[Array], separator: str, bins: int) -> Array: ...
    def lookup_index(self, values: Array, lookup: IndexLookup, tables: Mapping[str, Array]) -> Array:
        """Returns positions in the vocabulary; -1 for a value that is not in it."""

    # These take text only.
    def parse_numbers(self, texts: Array, to: ToNumber) -> Array: ...
    def parse_dates(self, texts: Array, dates: DateParts) -> list[Array]:
        """Returns whether there is a date, and its year, month, day, hour, minute, second, int64."""
