"""Datasets of arrays: for Keras files that make their features in NumPy, a whole batch of columns at a time.

@numpy_dataset
def dataset_fn(dataset, mode, metadata):
    return dataset.map_columns(lambda columns: ({"price": np.asarray(columns["price"])}, …))
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any, TypeVar

import numpy as np

from elasticdl.data.collate import stack_arrays
from elasticdl.data.dataset import Batch, Dataset, Mode
from elasticdl.data.interface import Indices, RecordSource
from elasticdl.errors import ModelError
from elasticdl.keras.runtime import tf

_SAMPLE_RECORDS = 32  # records that are read to find their types
_MARK_ATTRIBUTE = "takes_arrays"

Function = TypeVar("Function", bound=Callable[..., Any])


def numpy_dataset(dataset_fn: Function) -> Function:
    """Mark a dataset_fn that takes the dataset of a torch file (map, filter, map_batches, map_columns) of arrays."""
    setattr(dataset_fn, _MARK_ATTRIBUTE, True)
    return dataset_fn


def is_numpy_dataset(dataset_fn: Callable[..., Any]) -> bool:
    return bool(getattr(dataset_fn, _MARK_ATTRIBUTE, False))


@dataclass(frozen=True, slots=True)
class ArrayDataset(Dataset):
    """Batches of arrays, as tensors; see `build_array_dataset`."""

    spec: tuple[Any, Any] = (None, None)  # of features and labels of a batch of any size

    def make_batch(self, records: Any, indices: Indices) -> Batch | None:
        # Not by super(): a dataclass with slots is another class than the one this is written in.
        batch = Dataset.make_batch(self, records, indices)
        if batch is None:
            return None
        features, labels = (_to_tensors(part) for part in (batch.features, batch.labels))
        return Batch(features, labels, batch.size)


def build_array_dataset(source: RecordSource, mode: Mode, function: Callable[[Dataset], Any]) -> ArrayDataset:
    """The dataset that `function` makes of the records of `source`. The first records show their structure."""
    built = function(Dataset(source, mode, stack=stack_arrays))
    if not isinstance(built, Dataset):
        raise ModelError(f"dataset_fn of arrays: expected the dataset it was given. Received: {type(built).__name__}")
    values = {field.name: getattr(built, field.name) for field in fields(Dataset)}
    sample = ArrayDataset(**values).read_batch(np.arange(min(_SAMPLE_RECORDS, len(source))))
    if sample is None:
        raise ModelError(
            f"dataset_fn of arrays: none of the first {_SAMPLE_RECORDS} records is left to show what features are"
        )
    return ArrayDataset(
        **values, spec=(_tensor_specs(sample.features), None if sample.labels is None else _tensor_specs(sample.labels))
    )


def _to_tensors(values: Any) -> Any:
    return None if values is None else tf.nest.map_structure(tf.constant, values)


def _tensor_specs(tensors: Any) -> Any:
    return tf.nest.map_structure(lambda tensor: tf.TensorSpec([None, *tensor.shape[1:]], tensor.dtype), tensors)
