"""dataset_fn of arrays: for Keras files that make their features in NumPy, whole batches of columns at a time.

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

_SAMPLE_RECORDS = 32  # records that are looked at for their types
_MARK_ATTRIBUTE = "takes_arrays"

Function = TypeVar("Function", bound=Callable[..., Any])


def numpy_dataset(dataset_fn: Function) -> Function:
    """Let dataset_fn have the dataset of a torch file (map, filter, map_batches, map_columns), and give arrays."""
    setattr(dataset_fn, _MARK_ATTRIBUTE, True)
    return dataset_fn


def is_numpy_dataset(dataset_fn: Callable[..., Any]) -> bool:
    return bool(getattr(dataset_fn, _MARK_ATTRIBUTE, False))


@dataclass(frozen=True, slots=True)
class ArrayDataset(Dataset):
    """Batches of arrays, as tensors; made by `build`."""

    spec: tuple[Any, Any] = (None, None)  # of features and labels of a batch of any size

    def make_batch(self, records: Any, indices: Indices) -> Batch | None:
        # Not by super(): a dataclass with slots is another class than the one this is written in.
        found = Dataset.make_batch(self, records, indices)
        if found is None:
            return None
        features, labels = (_to_tensors(part) for part in (found.features, found.labels))
        return Batch(features, labels, found.size)


def build_array_dataset(source: RecordSource, mode: Mode, function: Callable[[Dataset], Any]) -> ArrayDataset:
    """What `function` makes of the records of `source`; the first ones show what they are."""
    built = function(Dataset(source, mode, stack=stack_arrays))
    if not isinstance(built, Dataset):
        raise ModelError(f"dataset_fn of arrays: expected the dataset it was given. Received: {type(built).__name__}")
    dataset = ArrayDataset(**{one.name: getattr(built, one.name) for one in fields(Dataset)})
    shown = dataset.read_batch(np.arange(min(_SAMPLE_RECORDS, len(source))))
    if shown is None:
        raise ModelError(
            f"dataset_fn of arrays: none of the first {_SAMPLE_RECORDS} records is left to show what features are"
        )
    values = {one.name: getattr(built, one.name) for one in fields(Dataset)}
    return ArrayDataset(
        **values, spec=(_tensor_specs(shown.features), None if shown.labels is None else _tensor_specs(shown.labels))
    )


def _to_tensors(values: Any) -> Any:
    return None if values is None else tf.nest.map_structure(tf.constant, values)


def _tensor_specs(tensors: Any) -> Any:
    return tf.nest.map_structure(lambda one: tf.TensorSpec([None, *one.shape[1:]], one.dtype), tensors)
