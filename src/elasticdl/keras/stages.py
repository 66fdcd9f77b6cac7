"""What a person's dataset_fn did to the tf.data.Dataset it was given: read off the chain of datasets it returned."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from elasticdl.errors import ModelError
from elasticdl.keras.runtime import tf

_INSTEAD = {
    "repeat": "the epochs are those of the plan: use --num_epochs",
    "take": "it would be done to every batch anew: use --max_steps, or a smaller file",
    "skip": "it would be done to every batch anew: use filter, or a smaller file",
    "shard": "the plan shares the records out among the workers",
    "window": "a batch has no neighbours to make windows of: make them in the data",
}
_BATCHING = {"Batch", "ParallelBatch", "PaddedBatch"}
_ONE_FOR_ONE = {"Map", "ParallelMap", "Shuffle", "Prefetch", "Options", "TensorSlice", "Tensor", "Zip"} | _BATCHING


class Stages(NamedTuple):
    is_shuffled: bool
    window_records: int  # of the shuffling; 0: the default
    is_batched: bool
    keeps_all: bool  # every record becomes one item; else some may be dropped or become several


def read(dataset: Any) -> Stages:
    """Raises ModelError where a stage would train other records than the plan has."""
    is_shuffled, window_records, is_batched, keeps_all = False, 0, False, True
    for stage in _chain(dataset):
        name = type(stage).__name__.strip("_").removesuffix("V2").removesuffix("Dataset")
        if name.lower() in _INSTEAD:
            raise ModelError(f"dataset_fn: leave out dataset.{name.lower()}(…): {_INSTEAD[name.lower()]}")
        if name == "Shuffle":
            is_shuffled, window_records = True, _number(getattr(stage, "_buffer_size", 0))
        if name in _BATCHING:
            is_batched = True
            if _number(getattr(stage, "_drop_remainder", 0)):
                raise ModelError("dataset_fn: leave out drop_remainder=True: it would lose records of every batch")
        keeps_all = keeps_all and name in _ONE_FOR_ONE
    return Stages(is_shuffled, window_records, is_batched, keeps_all)


def _chain(dataset: Any) -> Iterator[Any]:
    yield dataset
    for inner in dataset._inputs():
        yield from _chain(inner)


def _number(value: Any) -> int:
    found = tf.get_static_value(value) if tf.is_tensor(value) else value
    return max(int(found or 0), 0)  # a size the graph computes is not known here
