"""Batches as tensors: nested dicts and tuples of them, with one row for each record."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from elasticdl.data.collate import count_records, stack_arrays
from elasticdl.data.dataset import Batch


def stack_values(values: list[Any]) -> Any:
    """Stack one or more values of the same shape into one tensor; text stays a list. A torch job's Dataset uses it."""
    if isinstance(values[0], Tensor):
        return torch.stack(values)
    return to_tensors(stack_arrays(values))


def to_tensors(value: Any) -> Any:
    """The same structure with tensors instead of NumPy arrays; arrays of text and objects become lists."""
    return _map_structure(value, _to_tensor)


def to_device(value: Any, device: torch.device) -> Any:
    """The same structure with its tensors on `device`."""
    return _map_structure(value, lambda leaf: leaf.to(device, non_blocking=True) if isinstance(leaf, Tensor) else leaf)


def move_batch(batch: Batch, device: torch.device) -> Batch:
    """A batch of a Dataset as tensors on `device`, ready for the model."""
    features = to_device(to_tensors(batch.features), device)
    labels = to_device(to_tensors(batch.labels), device)
    return Batch(features, labels, batch.size)


def batch_size(value: Any) -> int:
    """The number of records of a batch; DataError if its parts do not agree."""
    return count_records(value, "the batch")


def slice_rows(value: Any, start: int, stop: int) -> Any:
    """The same structure with the records [start, stop) of a batch."""
    return _map_structure(value, lambda leaf: _slice_leaf(leaf, start, stop))


def describe_structure(value: Any) -> str:
    """The structure of a batch for messages: `{image: float32[64, 1, 8, 8]}`."""
    if isinstance(value, Tensor):
        return f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)}"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {describe_structure(item)}" for key, item in value.items()) + "}"
    if isinstance(value, tuple):
        return "(" + ", ".join(describe_structure(item) for item in value) + ")"
    return f"list[{len(value)}]" if isinstance(value, list) else repr(value)


def _map_structure(value: Any, function: Callable[[Any], Any]) -> Any:
    if isinstance(value, dict):
        return {key: _map_structure(item, function) for key, item in value.items()}
    if isinstance(value, tuple):
        items = [_map_structure(item, function) for item in value]
        return type(value)(*items) if hasattr(value, "_fields") else tuple(items)
    return function(value)


def _slice_leaf(leaf: Any, start: int, stop: int) -> Any:
    if isinstance(leaf, Tensor) and leaf.is_nested:
        offsets: Tensor = leaf.offsets()  # type: ignore[attr-defined]
        bounds = offsets[start : stop + 1]
        first, last = int(bounds[0]), int(bounds[-1])
        return torch.nested.nested_tensor_from_jagged(leaf.values()[first:last], bounds - first)
    if isinstance(leaf, Tensor) and leaf.layout is torch.sparse_coo:
        return leaf.narrow_copy(0, start, stop - start)
    return leaf[start:stop]


def _to_tensor(leaf: Any) -> Any:
    if not isinstance(leaf, np.ndarray):
        return leaf
    if leaf.dtype.kind not in "biufc":
        return leaf.tolist()
    # torch cannot share an array that is read-only (mapped from a file) or of another byte order.
    is_native = leaf.dtype.isnative and leaf.flags.writeable
    return torch.from_numpy(leaf if is_native else leaf.astype(leaf.dtype.newbyteorder("="), copy=True))
