"""Runs a dataset_fn of tf.data.Dataset on the records that the plan chooses."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from elasticdl.data.collate import collate, object_array, stack_arrays
from elasticdl.data.dataset import Batch, Dataset, Metadata, Mode
from elasticdl.data.interface import Indices, Record, RecordSource
from elasticdl.errors import BadRecord, DataError, ElasticDLError, ModelError
from elasticdl.keras.runtime import tf

_SAMPLE_RECORDS = 32  # records that are read to find their types
DatasetFunction = Callable[[Any, Mode, Metadata], Any]


class TracedFunction(NamedTuple):
    """A compiled dataset_fn, for records of one structure."""

    records: Any  # the spec of the records of a batch
    batch: Any  # the spec of the resulting batch
    stages: DatasetStages
    count: Callable[[Any], Any]  # the number of items that the records become
    run: Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class KerasDataset(Dataset):
    """Batches of a tf.data.Dataset; see `build_keras_dataset`."""

    traced: TracedFunction | None = None

    @property
    def spec(self) -> tuple[Any, Any]:
        """The specs of features and labels of a batch of any size; None for labels if there are none."""
        assert self.traced is not None
        return _split_batch(self.traced.batch, self.mode)

    def make_batch(self, records: list[Record], indices: Indices) -> Batch | None:
        assert self.traced is not None
        if not records:
            return None
        tensors = self._tensors(records, indices)
        try:
            items = int(self.traced.count(tensors))
            if not items:
                return None
            features, labels = _split_batch(self.traced.run(tensors), self.mode)
        except tf.errors.OpError as exc:
            locations = [self.source.locate(int(index)) for index in (indices[0], indices[-1])]
            raise BadRecord(
                f"{' … '.join(dict.fromkeys(locations))}: dataset_fn failed: {_graph_error_reason(exc)}"
            ) from exc
        return Batch(features, labels, items)

    def _tensors(self, records: list[Record], indices: Indices) -> Any:
        assert self.traced is not None
        try:
            return tf.nest.map_structure(
                lambda spec, value: _to_tensor(value, spec.dtype), self.traced.records, stack_records(records)
            )
        except (ValueError, TypeError) as exc:
            location = self.source.locate(int(indices[0]))
            raise BadRecord(f"{location} and those after it: other columns or types than in record 0: {exc}") from exc


def build_keras_dataset(
    source: RecordSource, mode: Mode, function: DatasetFunction, metadata: Metadata
) -> KerasDataset:
    """The dataset that `function` makes of the records of `source`. The first records show their structure."""
    sample = min(_read_first(source, mode), key=_count_empty_lists)
    spec = tf.nest.map_structure(_tensor_spec, stack_records([sample]))
    traced = _trace_function(spec, lambda dataset: function(dataset, mode, metadata))
    stages = traced.stages
    return KerasDataset(
        source, mode, is_shuffled=stages.is_shuffled, window_records=stages.window_records, traced=traced
    )


def _read_first(source: RecordSource, mode: Mode) -> list[Record]:
    """The first records. In a prediction, which may have bad rows, the good ones among the first records."""
    first = np.arange(min(_SAMPLE_RECORDS, len(source)))
    try:
        return source.read(first)
    except DataError:
        if mode is not Mode.PREDICTION:
            raise
        good = [record for index in first for record in _read_if_good(source, index)]
        if not good:
            raise
        return good


def _read_if_good(source: RecordSource, index: Any) -> list[Record]:
    try:
        return source.read(np.array([index]))
    except DataError:
        return []


def stack_records(records: Sequence[Record]) -> Any:
    """The records of a batch as arrays with one row for each, in the structure of a record; lists stay as they are."""
    return collate(records, lambda values: (object_array if _is_list(values) else stack_arrays)(values), "the record")


def _trace_function(spec: Any, function: Callable[[Any], Any]) -> TracedFunction:
    traces: list[tuple[DatasetStages, Any]] = []

    def items(records: Any) -> Any:
        dataset = function(tf.data.Dataset.from_tensor_slices(records))
        if not isinstance(dataset, tf.data.Dataset):
            raise ModelError(f"dataset_fn: expected a tf.data.Dataset. Received: {type(dataset).__name__}")
        stages = read_stages(dataset)
        dataset = dataset.unbatch() if stages.is_batched else dataset
        traces.append((stages, dataset.element_spec))
        return dataset

    def run(records: Any) -> Any:
        batched = _batch_all(items(records))
        traces.append((traces[-1][0], batched.element_spec))
        return batched.get_single_element()

    def count(records: Any) -> Any:
        return items(records).reduce(np.int64(0), lambda before, *_: before + 1)

    compiled = tf.function(run, input_signature=[spec], autograph=False)
    try:
        compiled.get_concrete_function()
    except ElasticDLError:
        raise
    except Exception as exc:
        raise ModelError(f"dataset_fn failed: {type(exc).__name__}: {_first_line(exc)}") from exc
    stages, batch = traces[-1]
    counted = _count_rows if stages.keeps_all else tf.function(count, input_signature=[spec], autograph=False)
    return TracedFunction(spec, batch, stages, counted, compiled)


def _batch_all(dataset: Any) -> Any:
    """All items as one batch, which is ragged if their shapes differ."""
    everything = tf.constant(np.iinfo(np.int64).max)
    dense = [s for s in tf.nest.flatten(dataset.element_spec) if isinstance(s, tf.TensorSpec | tf.RaggedTensorSpec)]
    is_even = all(spec.shape.is_fully_defined() for spec in dense)
    return dataset.batch(everything) if is_even else dataset.ragged_batch(everything)


def _count_rows(records: Any) -> int:
    return int(tf.nest.flatten(records)[0].shape[0])


def _split_batch(batch: Any, mode: Mode) -> tuple[Any, Any]:
    if isinstance(batch, tuple) and len(batch) == 2:
        return batch[0], batch[1]
    if mode is Mode.PREDICTION:
        return batch, None
    raise ModelError(
        "dataset_fn: expected each record to become (features, labels); "
        "end with dataset.map(lambda record: (features, labels))"
    )


def _tensor_spec(array: Any) -> Any:
    if array.dtype == object:
        value = array[0]
        if isinstance(value, str | bytes):
            return tf.TensorSpec([None], tf.string)
        if isinstance(value, list):
            return tf.RaggedTensorSpec([None, None], tf.constant(_to_numbers(value or [0])).dtype, ragged_rank=1)
        raise DataError(f"record 0 holds a {type(value).__name__}: expected numbers, text, or lists of them")
    return tf.TensorSpec([None, *array.shape[1:]], tf.as_dtype(array.dtype))


def _to_tensor(array: Any, dtype: Any) -> Any:
    if array.dtype == object and _is_list(array):
        return tf.ragged.constant(array.tolist(), dtype=dtype, ragged_rank=1)
    return tf.constant(array.tolist() if array.dtype == object else array, dtype=dtype)


def _count_empty_lists(record: Any) -> int:
    """How many lists of a record are empty, and so do not show their type."""
    if isinstance(record, dict | tuple):
        return sum(map(_count_empty_lists, record.values() if isinstance(record, dict) else record))
    return int(isinstance(record, list) and not record)


def _to_numbers(values: list[Any]) -> Any:
    return values if isinstance(values[0], str | bytes) else stack_arrays(values)


def _is_list(values: Sequence[Any]) -> bool:
    """Lists may differ in length from record to record: they become ragged tensors."""
    return isinstance(values[0], list)


def _graph_error_reason(exc: Any) -> str:
    """Returns the reason of an error in a graph: the line of TensorFlow's message that is not about the graph."""
    lines = [line for line in exc.message.splitlines() if line.strip() and "[[" not in line]
    return re.sub(r"^Error in user-defined function .*? with iterator: \S+: ", "", lines[-1])[:500]


def _first_line(exc: BaseException) -> str:
    return str(exc).strip().partition("\n")[0][:500]


_UNSUPPORTED = {
    "repeat": "the epochs are those of the plan: use --num_epochs",
    "take": "it would be applied to every batch again: use --max_steps, or a smaller file",
    "skip": "it would be applied to every batch again: use filter, or a smaller file",
    "shard": "the plan shares the records out among the workers",
    "window": "a batch has no neighbours to make windows of: make them in the data",
}
_BATCHING_STAGES = {"Batch", "ParallelBatch", "PaddedBatch"}
_ONE_TO_ONE_STAGES = {
    "Map",
    "ParallelMap",
    "Shuffle",
    "Prefetch",
    "Options",
    "TensorSlice",
    "Tensor",
    "Zip",
} | _BATCHING_STAGES


class DatasetStages(NamedTuple):
    """What the stages of a tf.data.Dataset say about the order and number of its items."""

    is_shuffled: bool
    window_records: int  # of the shuffling; 0: the default
    is_batched: bool
    keeps_all: bool  # every record becomes one item; otherwise some may be dropped or become several


def read_stages(dataset: Any) -> DatasetStages:
    """Raises ModelError if a stage would train other records than those of the plan."""
    is_shuffled, window_records, is_batched, keeps_all = False, 0, False, True
    for stage in _iterate_stages(dataset):
        name = type(stage).__name__.strip("_").removesuffix("V2").removesuffix("Dataset")
        if name.lower() in _UNSUPPORTED:
            raise ModelError(f"dataset_fn: leave out dataset.{name.lower()}(…): {_UNSUPPORTED[name.lower()]}")
        if name == "Shuffle":
            is_shuffled, window_records = True, _static_number(getattr(stage, "_buffer_size", 0))
        if name in _BATCHING_STAGES:
            is_batched = True
            if _static_number(getattr(stage, "_drop_remainder", 0)):
                raise ModelError("dataset_fn: leave out drop_remainder=True: it would lose records of every batch")
        keeps_all = keeps_all and name in _ONE_TO_ONE_STAGES
    return DatasetStages(is_shuffled, window_records, is_batched, keeps_all)


def _iterate_stages(dataset: Any) -> Iterator[Any]:
    yield dataset
    for inner in dataset._inputs():
        yield from _iterate_stages(inner)


def _static_number(value: Any) -> int:
    static = tf.get_static_value(value) if tf.is_tensor(value) else value
    return max(int(static or 0), 0)  # a size that the graph computes is unknown here
