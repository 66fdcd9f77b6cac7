"""The dataset that a user's `dataset_fn(dataset, mode, metadata)` builds upon: records and the functions for them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Literal

import numpy as np

from elasticdl.data.bad_records import BadRecords
from elasticdl.data.collate import Stack, collate, columns_from_records, count_records, stack_arrays
from elasticdl.data.column_names import format_names
from elasticdl.data.interface import Indices, Record, RecordSource, Schema
from elasticdl.errors import BadRecord, ElasticDLError, ModelError


class Mode(StrEnum):
    """The mode that dataset_fn is called with. It may read labels only in TRAINING and EVALUATION."""

    TRAINING = "training"
    EVALUATION = "evaluation"
    PREDICTION = "prediction"


@dataclass(frozen=True, slots=True)
class Metadata:
    """The columns, size and name of the data, for dataset_fn."""

    columns: tuple[str, ...]
    records: int
    name: str

    @property
    def column_names(self) -> list[str]:
        """The columns under the name that the original ElasticDL uses."""
        return list(self.columns)


@dataclass(frozen=True, slots=True)
class Batch:
    """`size` records, ready for the model. `labels` is None if a prediction has none."""

    features: Any
    labels: Any
    size: int

    @property
    def value(self) -> Any:
        """What a training loop receives for this batch."""
        return self.features, self.labels


@dataclass(frozen=True, slots=True)
class CollatedBatch(Batch):
    """A batch of any structure from a `collate_fn`. A pair is features and labels, anything else is features."""

    collated: Any

    @property
    def value(self) -> Any:
        return self.collated


@dataclass(frozen=True, slots=True)
class Stage:
    """A function that is applied to records or batches."""

    kind: Literal["map", "filter", "map_batches", "map_columns"]
    function: Callable[[Any], Any]
    schema: Schema = field(default_factory=dict)  # for map_columns

    @property
    def takes_batches(self) -> bool:
        """Whether the function takes whole batches."""
        return self.kind in ("map_batches", "map_columns")

    def __str__(self) -> str:
        return f"{self.kind}({getattr(self.function, '__qualname__', type(self.function).__name__)})"


@dataclass(frozen=True, slots=True)
class Dataset:
    """A source of records and the functions applied to them. Immutable: each method returns a new dataset."""

    source: RecordSource
    mode: Mode = Mode.TRAINING
    stack: Stack = stack_arrays
    stages: tuple[Stage, ...] = ()
    is_shuffled: bool = False
    window_records: int = 0  # for shuffling; 0: the default
    bad_records: BadRecords = field(default_factory=BadRecords)

    @property
    def metadata(self) -> Metadata:
        return Metadata(self.source.columns, len(self.source), self.source.name)

    def map(self, function: Callable[[Any], Any]) -> Dataset:
        """Replaces each item by function(item)."""
        return self._then(Stage("map", function))

    def filter(self, function: Callable[[Any], bool]) -> Dataset:
        """Keeps only items for which function(item) is true. Batches then differ in size."""
        return self._then(Stage("filter", function))

    def map_batches(self, function: Callable[[Any], Any]) -> Dataset:
        """Replaces a whole batch by function(batch), which returns (features, labels), or features in prediction.

        The batch is a dict from column to array if items are dicts, otherwise the list of items. A second
        map_batches receives the result of the first. Only map_batches may follow.
        """
        return self._then(Stage("map_batches", function))

    def map_columns(self, function: Callable[[Any], Any], schema: Mapping[str, Any] | None = None) -> Dataset:
        """Replaces a whole batch by function(columns), as map_batches does; `columns` is a pyarrow.RecordBatch.

        Text stays text unless `schema` names another type: {"price": "float32"}, or Arrow types. An empty field of a
        CSV file is null. This is the fastest way to read tables. It must come first; only map_batches may follow.
        """
        from elasticdl.data import columns  # Arrow takes a fifth of a second to import

        stage = Stage("map_columns", function, columns.parse_schema(schema or {}, self.source.columns))
        if self.stages:
            raise ModelError(
                f"dataset: {stage} follows {self.stages[-1]}, which leaves no columns; "
                f"put it first, and move what was before it into its function"
            )
        return self._then(stage)

    def shuffle(self, window_records: int | None = None) -> Dataset:
        """Requests shuffled epochs; records are mixed within windows of about `window_records`."""
        if window_records is not None and window_records < 1:
            raise ModelError(f"dataset.shuffle: window_records must be 1 or more, got {window_records}")
        return replace(self, is_shuffled=True, window_records=window_records or 0)

    @property
    def can_read_ahead(self) -> bool:
        return self.source.can_read_ahead

    def read(self, indices: Indices) -> Any:
        """Reads records as the first stage takes them: a list, or a RecordBatch for map_columns."""
        if not self._is_columnar:
            return self.source.read(indices)
        from elasticdl.data import columns

        return columns.read_columns(self.source, indices, self.stages[0].schema)

    def read_items(self, indices: Indices) -> list[Any]:
        """Reads records and applies the stages for single records."""
        indices = np.asarray(indices, dtype=np.int64)
        return self.make_items(self.source.read(indices), indices)

    def read_batch(self, indices: Indices) -> Batch | None:
        """Reads records as one batch; returns None if all of them are filtered out."""
        indices = np.asarray(indices, dtype=np.int64)
        return self.make_batch(self.read(indices), indices)

    def read_valid_batch(
        self, indices: Indices, take: Callable[[], Any] | None = None, seed: Callable[[], None] = lambda: None
    ) -> Batch | None:
        """Reads the records that are valid as one batch; see `bad_records`. `take` returns what `read` returned before.

        Raises BadRecord if the job allows no bad records, and TooManyBadRecords if it allows fewer.
        """
        return self.bad_records.read_batch(self, indices, take, seed)

    def make_items(self, records: list[Record], indices: Indices) -> list[Any]:
        """Like `read_items`, for records that were read before; `indices` are their numbers, for messages."""
        stages = [stage for stage in self.stages if not stage.takes_batches]
        if not stages:
            return records
        return list(self._run(stages, records, indices))

    def make_batch(self, records: Any, indices: Indices) -> Batch | None:
        """Like `read_batch`, for what `read` returned before."""
        if self._is_columnar:
            return (
                self._split(self._run_on_batch(self.stages, records, indices), self.stages[-1])
                if len(indices)
                else None
            )
        items = self.make_items(records, indices)
        if not items:
            return None
        batch_stages = [stage for stage in self.stages if stage.takes_batches]
        if batch_stages:
            batch = columns_from_records(items) if isinstance(items[0], dict) else items
            return self._split(self._run_on_batch(batch_stages, batch, indices), batch_stages[-1])
        if isinstance(items[0], tuple) and len(items[0]) == 2:
            features, labels = collate(items, self.stack, "what dataset_fn gives")
            return Batch(features, labels, len(items))
        if self.mode == Mode.PREDICTION:
            return Batch(collate(items, self.stack, "what dataset_fn gives"), None, len(items))
        raise ModelError(
            f"dataset_fn: expected each record to become (features, labels), got {_describe_value(items[0])}; "
            f"end with dataset.map(lambda record: (features, labels))"
        )

    def _then(self, stage: Stage) -> Dataset:
        if not callable(stage.function):
            raise ModelError(f"dataset.{stage.kind}: expected a function, got {type(stage.function).__name__}")
        if not stage.takes_batches and self.stages and self.stages[-1].takes_batches:
            raise ModelError(
                f"dataset: {stage} follows {self.stages[-1]}, which leaves no single records; "
                f"put it before, or use map_batches again"
            )
        return replace(self, stages=(*self.stages, stage))

    def _run(self, stages: list[Stage], records: list[Record], indices: Indices) -> Iterable[Any]:
        for number, record in zip(indices.tolist(), records, strict=True):
            item, is_kept = record, True
            for stage in stages:
                try:
                    result = stage.function(item)
                    is_kept = stage.kind == "map" or bool(result)
                except ElasticDLError:
                    raise
                except Exception as exc:
                    where = f"{self.source.locate(number)}: {stage} of dataset_fn failed"
                    raise BadRecord(f"{where}: {type(exc).__name__}: {exc}{_missing_column_hint(exc, item)}") from exc
                if not is_kept:
                    break
                item = result if stage.kind == "map" else item
            if is_kept:
                yield item

    @property
    def _is_columnar(self) -> bool:
        return bool(self.stages) and self.stages[0].kind == "map_columns"

    def _run_on_batch(self, stages: Sequence[Stage], batch: Any, indices: Indices) -> Any:
        for stage in stages:
            try:
                batch = stage.function(batch)
            except ElasticDLError:
                raise
            except Exception as exc:
                where = f"{self.source.locate(int(indices[0]))} and {len(indices) - 1} more records"
                raise BadRecord(
                    f"{where}: {stage} of dataset_fn failed: {type(exc).__name__}: {exc}"
                    f"{_missing_column_hint(exc, batch)}"
                ) from exc
        return batch

    def _split(self, batch: Any, stage: Stage) -> Batch | None:
        where = f"what {stage} of dataset_fn gives"
        if isinstance(batch, tuple) and len(batch) == 2:
            size = count_records(batch, where)
            return Batch(batch[0], batch[1], size) if size else None
        if self.mode == Mode.PREDICTION:
            size = count_records(batch, where)
            return Batch(batch, None, size) if size else None
        raise ModelError(f"{where}: expected (features, labels), got {_describe_value(batch)}")


def _missing_column_hint(exc: Exception, item: Any) -> str:
    """Lists the existing columns if `exc` is about a missing one."""
    if not isinstance(exc, KeyError):
        return ""
    names = _column_names(item)
    return f"; the record has {format_names(names)}: correct dataset_fn or the data" if names else ""


def _column_names(item: Any) -> list[str]:
    """Returns the columns of a record or of an Arrow batch; empty for other items."""
    if isinstance(item, dict):
        return [str(name) for name in item]
    arrow = sys.modules.get("pyarrow")  # which only a process with Arrow batches has imported
    return list(item.schema.names) if arrow is not None and isinstance(item, arrow.RecordBatch) else []


def _describe_value(value: Any) -> str:
    return f"a tuple of {len(value)}" if isinstance(value, tuple) else f"a {type(value).__name__}"
