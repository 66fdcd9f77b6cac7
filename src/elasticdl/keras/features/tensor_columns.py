"""Handles columns in TensorFlow: dense, ragged and sparse."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from elasticdl.errors import DataError
from elasticdl.features.transforms import array_columns
from elasticdl.features.transforms.array_columns import Ragged, Sparse
from elasticdl.features.transforms.numpy_ops import decode_dictionary
from elasticdl.keras.runtime import tf


def is_ragged(column: Any) -> bool:
    return isinstance(column, tf.RaggedTensor)


def is_sparse(column: Any) -> bool:
    return isinstance(column, tf.SparseTensor)


def to_tensors(column: Any) -> Any:
    """A column as a tensor. Lists, NumPy and Arrow columns get the type that the definition sees."""
    if tf.is_tensor(column) or is_ragged(column) or is_sparse(column):
        return column
    if isinstance(column, tf.Variable):
        return tf.convert_to_tensor(column)
    flat, rebuild = array_columns.flatten_column(column)
    if not isinstance(flat, np.ndarray):
        text = ["" if value is None else value for value in decode_dictionary(flat).to_pylist()]
        flat = np.array(text, object)
    rebuilt = rebuild(flat)
    if isinstance(rebuilt, Ragged):
        return tf.RaggedTensor.from_row_splits(rebuilt.values, rebuilt.splits)
    if isinstance(rebuilt, Sparse):
        return tf.SparseTensor(rebuilt.indices, rebuilt.values, rebuilt.shape)
    return tf.convert_to_tensor(rebuilt)


def map_values(function: Callable[[Any], Any], column: Any) -> Any:
    """The column with `function` applied to its flat values."""
    if is_ragged(column):
        return column.with_flat_values(function(column.flat_values))
    if is_sparse(column):
        mapped = function(column.values)
        if mapped.shape.rank != 1:
            raise DataError("expected a dense or ragged column. Received: a sparse one, with several results a value")
        return tf.SparseTensor(column.indices, mapped, column.dense_shape)
    return function(column)


def flatten_rows(column: Any) -> tuple[Any, Any]:
    """Flat values and splits: what a row of a dense column has is all in one row."""
    if is_ragged(column):
        if column.ragged_rank != 1 or column.shape.rank != 2:
            raise DataError(f"expected a ragged column of two axes. Received: {column.shape}")
        return column.values, column.row_splits
    if is_sparse(column):
        counts = tf.math.bincount(
            tf.cast(column.indices[:, 0], tf.int32), minlength=tf.cast(column.dense_shape[0], tf.int32), dtype=tf.int64
        )
        return column.values, _row_splits(counts)
    shape = tf.shape(column, out_type=tf.int64)
    return tf.reshape(column, [-1]), tf.range(shape[0] + 1) * tf.reduce_prod(shape[1:])


def split_texts(flat: Any, splits: Any, separator: str) -> tuple[Any, Any]:
    pieces = tf.strings.split(flat, separator)
    return pieces.values, tf.gather(pieces.row_splits, splits)


def filter_values(flat: Any, splits: Any, keep: Any) -> tuple[Any, Any]:
    return tf.boolean_mask(flat, keep), tf.gather(_row_splits(tf.cast(keep, tf.int64)), splits)


def truncate_rows(flat: Any, splits: Any, max_length: int, *, is_last: bool) -> tuple[Any, Any]:
    lengths = splits[1:] - splits[:-1]
    indices = tf.range(tf.size(flat, out_type=tf.int64)) - tf.repeat(splits[:-1], lengths)
    keep = indices >= tf.repeat(lengths, lengths) - max_length if is_last else indices < max_length
    return filter_values(flat, splits, keep)


def make_ragged(flat: Any, splits: Any) -> Any:
    return tf.RaggedTensor.from_row_splits(flat, splits, validate=False)


def make_sparse(column: Any, keep: Any) -> Any:
    return tf.SparseTensor(tf.where(keep), tf.boolean_mask(column, keep), tf.shape(column, out_type=tf.int64))


def concatenate_columns(columns: list[Any], offsets: tuple[int, ...]) -> Any:
    def add_offset(ids: Any, offset: int) -> Any:
        if ids.dtype.is_floating or ids.dtype == tf.string:
            raise DataError("ConcatenateWithOffset: expected whole numbers; use Hashing or IndexLookup before")
        ids = tf.cast(ids, tf.int64)
        return tf.where(ids < 0, ids, ids + offset)

    shifted = [
        map_values(partial(add_offset, offset=offset), column) for column, offset in zip(columns, offsets, strict=True)
    ]
    if all(is_ragged(column) for column in shifted):
        return tf.concat(shifted, 1)
    if all(is_sparse(column) for column in shifted):
        return tf.sparse.concat(-1, shifted)
    if any(is_ragged(column) or is_sparse(column) for column in shifted):
        raise DataError("ConcatenateWithOffset: expected columns that are all dense, all ragged or all sparse")
    return tf.concat([column[:, tf.newaxis] if column.shape.rank == 1 else column for column in shifted], -1)


def _row_splits(lengths: Any) -> Any:
    return tf.pad(tf.cumsum(lengths), [[1, 0]])
