"""Columns in torch: dense tensors, jagged nested ones, sparse ones (COO), and `Ragged` or a pair (values, splits)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from elasticdl.errors import DataError
from elasticdl.features.transforms.array_columns import Ragged, Sparse


def is_ragged_pair(values: Any) -> bool:
    return isinstance(values, tuple) and len(values) == 2 and all(isinstance(part, Tensor) for part in values)


def map_values(function: Callable[[Tensor], Tensor], values: Any) -> Any:
    """Applies `function` to the flat values of a column and returns a column of the same form."""
    if is_ragged_pair(values):
        return Ragged(function(values[0]), values[1])
    if values.is_nested:
        return torch.nested.nested_tensor_from_jagged(function(values.values()), values.offsets())
    if values.layout == torch.sparse_coo:
        values = values.coalesce()
        return _sparse_tensor(values.indices(), function(values.values()), values.shape)
    return function(values)


def tensors_from_arrays(column: Any) -> Any:
    """Returns a column of NumPy as tensors; text stays an Arrow array."""
    if isinstance(column, Ragged):
        return Ragged(tensors_from_arrays(column.values), torch.from_numpy(np.ascontiguousarray(column.splits)))
    if isinstance(column, Sparse):
        if not isinstance(column.values, np.ndarray):
            return column
        indices = torch.from_numpy(np.ascontiguousarray(column.indices.T))
        return _sparse_tensor(indices, tensors_from_arrays(column.values), torch.Size(column.shape))
    return torch.from_numpy(np.ascontiguousarray(column)) if isinstance(column, np.ndarray) else column


def as_ragged(values: Any) -> Ragged:
    """Returns any column as ragged. All values of a dense row become one ragged row."""
    if is_ragged_pair(values):
        return Ragged(*values)
    if values.is_nested:
        return Ragged(values.values(), values.offsets())
    if values.layout == torch.sparse_coo:
        values = values.coalesce()
        counts = torch.bincount(values.indices()[0], minlength=values.shape[0])
        return Ragged(values.values(), _row_splits(counts))
    size = values[0].numel() if values.dim() > 1 and values.shape[0] else 1
    return Ragged(values.reshape(-1), torch.arange(values.shape[0] + 1, device=values.device) * size)


def filter_values(rows: Ragged, keep: Tensor) -> Ragged:
    return Ragged(rows.values[keep], _row_splits(keep.to(torch.int64))[rows.splits])


def make_sparse(values: Tensor, keep: Tensor) -> Tensor:
    return _sparse_tensor(torch.nonzero(keep).T, values[keep], values.shape)


def concatenate_columns(columns: list[Any], offsets: tuple[int, ...]) -> Any:
    def make_shift(offset: int) -> Callable[[Tensor], Tensor]:
        def shift(ids: Tensor) -> Tensor:
            if ids.dtype.is_floating_point:
                raise DataError("ConcatenateWithOffset: expected whole numbers; use Hashing or IndexLookup before")
            ids = ids.to(torch.int64)
            return torch.where(ids < 0, ids, ids + offset)

        return shift

    shifted = [map_values(make_shift(offset), column) for column, offset in zip(columns, offsets, strict=True)]
    is_ragged = [is_ragged_pair(column) or column.is_nested for column in shifted]
    is_sparse = [
        not ragged and column.layout == torch.sparse_coo for column, ragged in zip(shifted, is_ragged, strict=True)
    ]
    if all(is_ragged):
        joined = _concatenate_ragged([as_ragged(column) for column in shifted])
        return joined if is_ragged_pair(shifted[0]) else torch.nested.nested_tensor_from_jagged(*joined)
    if all(is_sparse):
        return torch.cat(shifted, -1).coalesce()
    if any(is_ragged) or any(is_sparse):
        raise DataError("ConcatenateWithOffset: expected columns that are all dense, all ragged or all sparse")
    return torch.cat([column[:, None] if column.dim() == 1 else column for column in shifted], -1)


def _concatenate_ragged(ragged: list[Ragged]) -> Ragged:
    lengths = torch.stack([torch.diff(column.splits) for column in ragged])  # [columns, rows]
    splits = _row_splits(lengths.sum(0))
    starts = splits[:-1] + torch.cumsum(lengths, 0) - lengths
    values = torch.empty(sum(len(column.values) for column in ragged), dtype=torch.int64, device=splits.device)
    for column, start, length in zip(ragged, starts, lengths, strict=True):
        shift = torch.repeat_interleave(start - column.splits[:-1], length)
        values[torch.arange(len(column.values), device=splits.device) + shift] = column.values
    return Ragged(values, splits)


def _row_splits(lengths: Tensor) -> Tensor:
    return torch.nn.functional.pad(torch.cumsum(lengths, 0), (1, 0))


def _sparse_tensor(indices: Tensor, values: Tensor, shape: Any) -> Tensor:
    # Indices are sorted and distinct: they come from a coalesced tensor, or from `nonzero`.
    size = (*shape, *values.shape[1:])
    return torch.sparse_coo_tensor(indices, values, size, is_coalesced=True, check_invariants=False)
