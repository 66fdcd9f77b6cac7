"""Columns of any kind to flat values and back: what a transformation sees is flat NumPy numbers or flat Arrow text.

A null is NaN in a column of numbers, and the empty text in one of text.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from elasticdl.errors import DataError
from elasticdl.features.ragged import Ragged, Sparse

Rebuild = Callable[[Any], Any]


def flatten(values: Any) -> tuple[Any, Rebuild]:
    """Flat values, and what puts results in their places again."""
    values = known(values)
    if isinstance(values, Ragged):
        inner, _ = flatten(values.values)
        return inner, lambda results: Ragged(results, values.splits)
    if isinstance(values, Sparse):
        inner, _ = flatten(values.values)
        return inner, lambda results: Sparse(results, values.places, values.shape)
    if isinstance(values, np.ndarray):
        shape = values.shape
        flat = values.reshape(-1)
        if flat.dtype.kind not in "iuf":
            flat = _from_arrow(_to_arrow(flat))
        return flat, lambda results: _shaped(results, shape)
    return _from_arrow(values), lambda results: results


def known(values: Any) -> Any:
    """Lists and Arrow lists as Ragged or arrays; the rest as it is."""
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
            return Ragged(_array(flat), np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64))
    return _array(values)


def _array(values: Any) -> Any:
    """Of Python's own values. None among them makes a null."""
    found = np.asarray(values)
    return found if found.dtype.kind in "iufbMUS" else np.asarray(values, object)


def _to_arrow(flat: Any) -> Any:
    import pyarrow as pa

    try:
        return pa.array(flat, from_pandas=flat.dtype.kind == "O")
    except (pa.ArrowInvalid, pa.ArrowTypeError, UnicodeEncodeError) as exc:
        raise DataError(f"expected a column of numbers, of text or of dates: {exc}") from exc


def _from_arrow(values: Any) -> Any:
    """Numbers as NumPy's, dates as seconds since 1970, text as Arrow's."""
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
    found = values.to_numpy(zero_copy_only=False)
    if found.dtype.kind not in "iuf":
        raise DataError(f"expected a column of numbers, of text or of dates. Received: {kind}")
    return found


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


def _shaped(results: Any, shape: tuple[int, ...]) -> Any:
    return results.reshape(shape + results.shape[1:]) if isinstance(results, np.ndarray) else results
