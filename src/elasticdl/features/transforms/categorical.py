"""Transforms of values to ids: Hashing, IndexLookup, Cross."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from elasticdl.errors import DataError
from elasticdl.features.transforms import current_statistics
from elasticdl.features.transforms.array_columns import Ragged, Sparse
from elasticdl.features.transforms.base import ElementwiseTransform, check_bins
from elasticdl.features.transforms.ops import Array, Ops
from elasticdl.features.vocabulary import PackedStrings

if TYPE_CHECKING:
    from elasticdl.features.statistics import Statistics


@dataclass(frozen=True)
class Hashing(ElementwiseTransform):
    """Returns the fingerprint of a value modulo `num_bins`, int64, like TensorFlow's `to_hash_bucket_fast`.

    The fingerprint is FarmHash's Fingerprint64 of the bytes of the text in UTF-8. A whole number is first converted
    to its decimal text: 12 and "12" have the same id. A null is the empty text. Floats are refused, because they
    have no unique text.

    >>> Hashing(num_bins=3)(["A", "B", "C", "D", "E"])
    array([1, 0, 1, 1, 2])
    """

    num_bins: int

    def __post_init__(self) -> None:
        check_bins("Hashing", "num_bins", self.num_bins)

    @classmethod
    def from_statistics(
        cls, name: str, *, bins_per_value: float = 1.0, statistics: Statistics | str | Path | None = None
    ) -> Hashing:
        """Uses as many bins as the column has distinct values, times `bins_per_value`; more bins mean fewer
        collisions."""
        return cls(max(1, math.ceil(current_statistics.column_statistics(name, statistics).distinct * bins_per_value)))

    def compute(self, ops: Ops, values: Array, tables: Mapping[str, Array]) -> Array:
        return ops.hash_buckets(values, self.num_bins)


Positions = NDArray[np.int64]
VocabularyFinder = Callable[[Any], Positions]
"""Maps an Arrow array of texts without nulls to their positions; -1 for a text that is not in the vocabulary."""


def vocabulary_finder(vocabulary: Sequence[str]) -> VocabularyFinder:
    from elasticdl.features import native_core

    index = native_core.VocabularyIndex(*PackedStrings.from_strings(vocabulary).buffers)

    def find(texts: Any) -> Positions:
        values = _as_binary(texts)
        if not len(values):
            return np.empty(0, np.int64)
        _, offsets, letters = values.buffers()
        positions = index.find(
            np.frombuffer(letters, np.uint8) if letters else np.empty(0, np.uint8),
            np.frombuffer(offsets, np.int32)[values.offset : values.offset + len(values) + 1],
        )
        return positions.view(np.int64)  # C's long long, which NumPy writes otherwise

    return find


def _as_binary(texts: Any) -> Any:
    import pyarrow as pa

    return texts.cast(pa.binary())


@dataclass(frozen=True)
class IndexLookup(ElementwiseTransform):
    """Returns the index of a value in the vocabulary, int64.

    Other values are `len(vocabulary) + fingerprint % num_oov_tokens`.

    The vocabulary is a list, or a file in UTF-8 with one value per line. Values are text; a whole number is looked up
    by its decimal text. A null is the empty text. The fingerprint is that of `Hashing`.

    >>> IndexLookup(["A", "B", "C"])(["B", "A", "unheard of", "C"])
    array([1, 0, 3, 2])
    """

    vocabulary: Sequence[str] | str | Path
    num_oov_tokens: int = 1

    def __post_init__(self) -> None:
        check_bins("IndexLookup", "num_oov_tokens", self.num_oov_tokens)
        is_file = isinstance(self.vocabulary, str | Path)
        values = _read_lines(Path(str(self.vocabulary))) if is_file else tuple(self.vocabulary)  # type: ignore[arg-type]
        if wrong := [value for value in values if not isinstance(value, str)]:
            raise ValueError(f"IndexLookup: expected a vocabulary of text. Received: {wrong[0]!r} in it")
        if repeated := [value for value, count in Counter(values).items() if count > 1]:
            where = f"{self.vocabulary}: " if is_file else ""
            raise ValueError(f"IndexLookup: {where}expected every value once. Received: {repeated[0]!r} more than once")
        object.__setattr__(self, "vocabulary", values)

    @classmethod
    def from_statistics(
        cls,
        name: str,
        *,
        min_count: int = 1,
        num_oov_tokens: int = 1,
        statistics: Statistics | str | Path | None = None,
    ) -> IndexLookup:
        """Uses the values that occur at least `min_count` times, most frequent first."""
        column = current_statistics.column_statistics(name, statistics)
        if column.distinct and not column.values:
            raise DataError(f"column {name!r}: its statistics have no vocabulary; use Hashing, or analyze it as text")
        if min_count < column.min_count:
            raise DataError(
                f"column {name!r}: its statistics have only values that occur {column.min_count} times or more. "
                f"Received: min_count={min_count}; analyze again with a lower minimum"
            )
        counted = zip(column.values, column.counts, strict=True)
        return cls([value for value, count in counted if count >= min_count], num_oov_tokens)

    def num_bins(self) -> int:
        """Ids are 0 … num_bins() - 1."""
        return self._vocabulary_size + self.num_oov_tokens

    @property
    def _vocabulary_size(self) -> int:
        return len(self.vocabulary)  # type: ignore[arg-type]

    @cached_property
    def find(self) -> VocabularyFinder:
        return vocabulary_finder(self.vocabulary)  # type: ignore[arg-type]

    @cached_property
    def positions(self) -> dict[bytes, int]:
        """The position of each value, by its bytes."""
        return {str(value).encode(): position for position, value in enumerate(self.vocabulary)}  # type: ignore[arg-type]

    @cached_property
    def tables(self) -> dict[str, NDArray[Any]]:
        """The whole numbers of the vocabulary, sorted, and their positions: for values that are numbers in torch."""
        numbers = sorted((int(value), position) for value, position in self.positions.items() if _is_decimal(value))
        return {
            "numbers": np.array([number for number, _ in numbers], np.int64),
            "positions": np.array([position for _, position in numbers], np.int64),
        }

    def compute(self, ops: Ops, values: Array, tables: Mapping[str, Array]) -> Array:
        position = ops.lookup_index(values, self, tables)
        if self.num_oov_tokens == 1:  # no fingerprint is needed
            return ops.where(position < 0, self._vocabulary_size, position)
        oov_index = ops.hash_buckets(values, self.num_oov_tokens) + self._vocabulary_size
        return ops.where(position < 0, oov_index, position)


def _is_decimal(value: bytes) -> bool:
    """Whether it is the text of an int64, as that is written."""
    is_digits = value.removeprefix(b"-").isdigit() and len(value) <= 20
    return is_digits and str(int(value)).encode() == value and -(2**63) <= int(value) < 2**63


def _read_lines(path: Path) -> tuple[str, ...]:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as exc:
        raise DataError(f"IndexLookup: {path}: expected a file of UTF-8 with one value a line: {exc}") from exc
    lines = text.split("\n")
    return tuple(line.removesuffix("\r") for line in (lines[:-1] if lines[-1] == "" else lines))


CROSS_SEPARATOR = "\x1f"
"""Stands between the values: the unit separator of ASCII, so that ("a", "bc") is not ("ab", "c")."""


@dataclass(frozen=True)
class Cross(ElementwiseTransform):
    r"""Makes one id from the values of several columns of a row, int64.

    The id is the fingerprint of their texts modulo `num_bins`.

    Takes a list of two or more columns of the same shape. The texts are joined by "\x1f", the unit separator of
    ASCII, so that ("a", "bc") is not ("ab", "c"); values that contain it may collide. Whole numbers and nulls are
    handled as in `Hashing`. Values are crossed position by position, not each with each.

    >>> Cross(num_bins=1000)([["a", "ab"], ["bc", "c"]])
    array([693, 234])
    """

    num_bins: int

    def __post_init__(self) -> None:
        check_bins("Cross", "num_bins", self.num_bins)

    def transform_arrays(self, values: Any) -> Any:
        from elasticdl.features.transforms import array_columns
        from elasticdl.features.transforms.numpy_ops import NUMPY_OPS

        check_columns(values)
        columns = [array_columns.as_column(value) for value in values]
        if not all(_have_same_shape(columns[0], column) for column in columns[1:]):
            raise DataError("Cross: expected columns of the same shape, with the same number of values in each row")
        flat, rebuilds = zip(*(array_columns.flatten_column(column) for column in columns), strict=True)
        return rebuilds[0](self.compute(NUMPY_OPS, list(flat), {}))

    def compute(self, ops: Ops, values: Array, tables: Mapping[str, Array]) -> Array:
        return ops.hash_joined_buckets(values, CROSS_SEPARATOR, self.num_bins)


def check_columns(values: Any) -> None:
    if not isinstance(values, list | tuple) or len(values) < 2:
        raise DataError(f"Cross: expected a list of two or more columns. Received: {type(values).__name__}")


def _have_same_shape(left: Any, right: Any) -> bool:
    if isinstance(left, Ragged) and isinstance(right, Ragged):
        return np.array_equal(left.splits, right.splits)
    if isinstance(left, Sparse) and isinstance(right, Sparse):
        return np.array_equal(left.indices, right.indices)
    if isinstance(left, Ragged | Sparse) or isinstance(right, Ragged | Sparse):
        return False
    if isinstance(left, np.ndarray) and isinstance(right, np.ndarray):
        return bool(left.shape == right.shape)
    return len(left) == len(right)
