"""Transforms of ids for an embedding table that several columns share: FieldIds, ConcatenateWithOffset."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elasticdl.errors import DataError
from elasticdl.features.layout import FIELD_BITS
from elasticdl.features.transforms.array_columns import Ragged, Sparse
from elasticdl.features.transforms.base import ElementwiseTransform, Transform
from elasticdl.features.transforms.ops import Array, Ops

MAX_FIELDS = 1 << (63 - FIELD_BITS)


@dataclass(frozen=True)
class FieldIds(ElementwiseTransform):
    """Returns `field << 48 | value`, int64: the same value of two fields has two ids.

    A value is taken modulo 2^48. A value below zero is padding and is not changed. Floats and text are refused.

    >>> FieldIds(field=2)([0, 5, -1])
    array([562949953421312, 562949953421317,              -1])
    """

    field: int

    def __post_init__(self) -> None:
        if not isinstance(self.field, int) or not 0 <= self.field < MAX_FIELDS:
            raise ValueError(f"FieldIds: expected a field from 0 to {MAX_FIELDS - 1}. Received: {self.field!r}")

    def compute(self, ops: Ops, values: Array, tables: Mapping[str, Array]) -> Array:
        if ops.kind(values) != "whole":
            raise DataError(
                f"FieldIds: expected whole numbers. Received: {ops.kind(values)}; use Hashing or IndexLookup before"
            )
        ids = ops.int64(values)
        return ops.where(ids < 0, ids, ids % (1 << FIELD_BITS) + (self.field << FIELD_BITS))


@dataclass(frozen=True)
class ConcatenateWithOffset(Transform):
    """Joins columns side by side, each with its offset added, int64: columns that share a table do not share ids.

    Takes a list of columns of whole numbers, all dense, all ragged or all sparse. With `offsets` None nothing is
    added. An id below zero is padding and is not changed. Dense columns of one axis have one value per row.

    >>> ConcatenateWithOffset(offsets=[0, 10])([[[1], [2]], [[3], [4]]])
    array([[ 1, 13],
           [ 2, 14]])
    """

    offsets: Sequence[int] | None = None

    def __post_init__(self) -> None:
        if self.offsets is not None:
            object.__setattr__(self, "offsets", tuple(int(offset) for offset in self.offsets))

    def resolve_offsets(self, count: int) -> tuple[int, ...]:
        """Returns an offset for each of `count` columns. DataError if there are more or fewer offsets."""
        if self.offsets is None:
            return (0,) * count
        if len(self.offsets) != count:
            raise DataError(
                f"ConcatenateWithOffset: expected {len(self.offsets)} columns, as many as offsets. Received: {count}"
            )
        return tuple(self.offsets)

    def transform_arrays(self, values: Any) -> Any:
        from elasticdl.features.transforms import array_columns

        if not isinstance(values, list | tuple) or not values:
            raise DataError(f"ConcatenateWithOffset: expected a list of columns. Received: {type(values).__name__}")
        offsets = self.resolve_offsets(len(values))
        shifted = [
            _add_offset(array_columns.as_column(value), offset) for value, offset in zip(values, offsets, strict=True)
        ]
        if all(isinstance(value, Ragged) for value in shifted):
            return _concatenate_ragged(shifted)
        if all(isinstance(value, Sparse) for value in shifted):
            return _concatenate_sparse(shifted)
        if any(isinstance(value, Ragged | Sparse) for value in shifted):
            raise DataError("ConcatenateWithOffset: expected columns that are all dense, all ragged or all sparse")
        return np.concatenate([value[:, np.newaxis] if value.ndim == 1 else value for value in shifted], axis=-1)


def _add_offset(column: Any, offset: int) -> Any:
    from elasticdl.features.transforms import array_columns

    flat, rebuild = array_columns.flatten_column(column)
    if not isinstance(flat, np.ndarray) or flat.dtype.kind == "f":
        raise DataError("ConcatenateWithOffset: expected whole numbers; use Hashing or IndexLookup before")
    ids = flat.astype(np.int64, copy=False)
    return rebuild(np.where(ids < 0, ids, ids + offset))


def _concatenate_ragged(ragged: list[Any]) -> Ragged:
    lengths = np.array([np.diff(column.splits) for column in ragged])  # [columns, rows]
    splits: NDArray[np.int64] = np.concatenate([[0], np.cumsum(lengths.sum(0))]).astype(np.int64)
    starts = splits[:-1] + np.cumsum(lengths, axis=0) - lengths
    values = np.empty(splits[-1], np.int64)
    for column, start, length in zip(ragged, starts, lengths, strict=True):
        shift = np.repeat(start - np.asarray(column.splits)[:-1], length)
        values[np.arange(len(column.values)) + shift] = column.values
    return Ragged(values, splits)


def _concatenate_sparse(sparse: list[Any]) -> Sparse:
    widths = np.cumsum([0, *(column.shape[-1] for column in sparse)])
    indices = [column.indices + np.array([0, width]) for column, width in zip(sparse, widths, strict=False)]
    joined, values = np.concatenate(indices), np.concatenate([column.values for column in sparse])
    order = np.lexsort(joined.T[::-1])
    return Sparse(values[order], joined[order].astype(np.int64), (*sparse[0].shape[:-1], int(widths[-1])))
