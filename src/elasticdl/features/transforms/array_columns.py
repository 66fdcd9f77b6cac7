"""Dense, ragged and sparse columns of NumPy and Arrow: flattened for a transform, rebuilt, split and truncated."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from elasticdl.errors import DataError
from elasticdl.features.layout import PADDING_ID
from elasticdl.features.transforms.numpy_ops import NUMPY_OPS, decode_dictionary


class Ragged(NamedTuple):
    """A column whose row r is `values[splits[r]:splits[r + 1]]`. Text is an Arrow array."""

    values: Any
    splits: Any  # int64, one more than rows

    def to_list(self) -> list[list[Any]]:
        import pyarrow as pa

        flat = self.values.to_pylist() if isinstance(self.values, pa.Array) else self.values.tolist()
        ends = self.splits.tolist()
        return [flat[start:end] for start, end in pairwise(ends)]

    def to_padded(self, longest: int, fill: int = PADDING_ID) -> NDArray[Any]:
        """Returns numbers as an array [rows, longest]: longer rows are truncated, shorter ones padded with `fill`."""
        splits = np.asarray(self.splits)
        values = np.asarray(self.values)
        if not len(values):
            return np.full((len(splits) - 1, longest), fill, values.dtype)
        indices = splits[:-1, np.newaxis] + np.arange(longest)
        is_value = indices < splits[1:, np.newaxis]
        padded: NDArray[Any] = np.where(is_value, values[np.minimum(indices, len(values) - 1)], fill)
        return padded.astype(values.dtype, copy=False)


class Sparse(NamedTuple):
    """An array of this shape with `values[i]` at `indices[i]`; indices are in the order of rows."""

    values: Any
    indices: Any  # int64 [values, axes]
    shape: Any

    def to_dense(self, fill: Any = 0) -> NDArray[Any]:
        values = np.asarray(self.values)
        dense = np.full(tuple(self.shape), fill, values.dtype)
        dense[tuple(np.asarray(self.indices).T)] = values
        return dense


Rebuild = Callable[[Any], Any]


def flatten_column(values: Any) -> tuple[Any, Rebuild]:
    """Returns the flat values, and a function that gives results the form of the column."""
    values = as_column(values)
    if isinstance(values, Ragged):
        inner, _ = flatten_column(values.values)
        return inner, lambda results: Ragged(results, values.splits)
    if isinstance(values, Sparse):
        inner, _ = flatten_column(values.values)
        return inner, lambda results: Sparse(results, values.indices, values.shape)
    if isinstance(values, np.ndarray):
        shape = values.shape
        flat = values.reshape(-1)
        if flat.dtype.kind not in "iuf":
            flat = _from_arrow(_to_arrow(flat))
        return flat, lambda results: _reshape(results, shape)
    return _from_arrow(values), lambda results: results


def as_column(values: Any) -> Any:
    """Returns lists and Arrow lists as Ragged or arrays, and other columns unchanged."""
    import pyarrow as pa

    if isinstance(values, Ragged | Sparse | np.ndarray):
        return values
    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks()
    if isinstance(values, pa.Array):
        if isinstance(values, pa.ListArray | pa.LargeListArray | pa.FixedSizeListArray):
            lengths = values.value_lengths().fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
            return Ragged(values.flatten(), np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64))
        return values
    if isinstance(values, tuple) and len(values) == 2 and all(isinstance(part, np.ndarray) for part in values):
        return Ragged(*values)
    if isinstance(values, list | tuple) and any(isinstance(row, list | tuple) for row in values):
        lengths = np.array([len(row) for row in values])
        if (lengths != lengths[0]).any():
            flat = [value for row in values for value in row]
            return Ragged(_as_array(flat), np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64))
    return _as_array(values)


def _as_array(values: Any) -> Any:
    """Returns an array of Python values; None becomes a null."""
    array = np.asarray(values)
    return array if array.dtype.kind in "iufbMUS" else np.asarray(values, object)


def _to_arrow(flat: Any) -> Any:
    import pyarrow as pa

    try:
        return pa.array(flat, from_pandas=flat.dtype.kind == "O")
    except (pa.ArrowInvalid, pa.ArrowTypeError, UnicodeEncodeError) as exc:
        raise DataError(f"expected a column of numbers, of text or of dates: {exc}") from exc


def _from_arrow(values: Any) -> Any:
    """Returns numbers as NumPy arrays, dates as seconds since 1970, and text as Arrow arrays."""
    import pyarrow as pa

    kind = values.type
    if pa.types.is_dictionary(kind):
        return _from_arrow(values.dictionary_decode()) if not _is_text(kind.value_type) else values
    if _is_text(kind):
        return values.cast(pa.string()) if pa.types.is_string_view(kind) else values
    if pa.types.is_null(kind):
        return values.cast(pa.string())
    if pa.types.is_temporal(kind):
        if pa.types.is_time(kind) or pa.types.is_duration(kind):
            raise DataError(f"expected a column of numbers, of text or of dates. Received: {kind}")
        values = values.cast(pa.timestamp("us"), safe=False)
        micros = values.cast(pa.int64()).to_numpy(zero_copy_only=False)
        return micros // 1_000_000 if not values.null_count else np.floor(micros / 1e6)
    if pa.types.is_decimal(kind):
        values = values.cast(pa.float64())
    if pa.types.is_boolean(kind):
        values = values.cast(pa.int8())
    numbers = values.to_numpy(zero_copy_only=False)
    if numbers.dtype.kind not in "iuf":
        raise DataError(f"expected a column of numbers, of text or of dates. Received: {kind}")
    return numbers


def _is_text(kind: Any) -> bool:
    import pyarrow as pa

    types = pa.types
    return bool(
        types.is_string(kind)
        or types.is_large_string(kind)
        or types.is_binary(kind)
        or types.is_large_binary(kind)
        or types.is_string_view(kind)
    )


def _reshape(results: Any, shape: tuple[int, ...]) -> Any:
    return results.reshape(shape + results.shape[1:]) if isinstance(results, np.ndarray) else results


def as_ragged(values: Any) -> Ragged:
    """Returns any column as ragged. All values of a dense row become one ragged row."""
    column = as_column(values)
    flat, _ = flatten_column(column)
    if isinstance(column, Ragged):
        return Ragged(flat, np.asarray(column.splits))
    if isinstance(column, Sparse):
        counts = np.bincount(np.asarray(column.indices)[:, 0], minlength=column.shape[0])
        return Ragged(flat, np.concatenate([[0], np.cumsum(counts)]).astype(np.int64))
    shape = column.shape if isinstance(column, np.ndarray) else (len(column),)
    if not shape:
        raise DataError("expected a column of rows. Received: a single value")
    size = int(np.prod(shape[1:], dtype=np.int64))
    return Ragged(flat, np.arange(shape[0] + 1, dtype=np.int64) * size)


def split_texts(rows: Ragged, separator: str) -> Ragged:
    """Splits every text into pieces; a null has none."""
    import pyarrow as pa
    import pyarrow.compute as pc

    texts = decode_dictionary(rows.values)
    try:
        texts = texts.cast(pa.string()).fill_null("")
    except pa.ArrowInvalid as exc:
        raise DataError(f"expected text in UTF-8: {exc}") from exc
    pieces = pc.split_pattern(texts, separator)
    lengths = pieces.value_lengths().to_numpy(zero_copy_only=False)
    ends = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
    return Ragged(pieces.flatten(), ends[rows.splits])


def drop_ignored(rows: Ragged, ignored: Any) -> Ragged:
    """Drops the values that are equal to `ignored`."""
    return filter_values(rows, ~equals_ignored(rows.values, ignored))


def equals_ignored(values: Any, ignored: Any) -> Any:
    if NUMPY_OPS.kind(values) == "text":
        return NUMPY_OPS.equals_text(values, ignored)
    return values == np.asarray(ignored).astype(values.dtype)


def filter_values(rows: Ragged, keep: NDArray[np.bool_]) -> Ragged:
    import pyarrow as pa

    ends = np.concatenate([[0], np.cumsum(keep, dtype=np.int64)])
    is_array = isinstance(rows.values, np.ndarray)
    return Ragged(rows.values[keep] if is_array else rows.values.filter(pa.array(keep)), ends[rows.splits])


def truncate_rows(rows: Ragged, longest: int, *, is_last: bool) -> Ragged:
    """Keeps at most `longest` values of each row: its last or its first ones."""
    lengths = np.diff(rows.splits)
    index = np.arange(len(rows.values)) - np.repeat(rows.splits[:-1], lengths)
    return filter_values(rows, index >= np.repeat(lengths, lengths) - longest if is_last else index < longest)


def resolve_ignore_value(kind: str, ignore_value: Any, *, owner: str, floats: float | None) -> Any:
    """Returns the value to leave out, by default "" of text, -1 of whole numbers and `floats` of floats.

    Raises DataError if `ignore_value` is of another kind than the column.
    """
    if ignore_value is None:
        return "" if kind == "text" else -1 if kind == "whole" else floats
    is_wrong = isinstance(ignore_value, str) != (kind == "text")
    if is_wrong or (kind == "whole" and int(ignore_value) != ignore_value):
        raise DataError(
            f"{owner}: expected an ignore_value that is {kind}, as the column is. Received: {ignore_value!r}"
        )
    return ignore_value
