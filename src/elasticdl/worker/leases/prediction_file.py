"""Writes predictions to a disk or an object store: one Parquet file for each shard, complete or absent."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from elasticdl import atomic
from elasticdl.data.interface import Indices, RecordSource
from elasticdl.errors import CheckpointFailed, DataError, SpecError, StoreUnavailable
from elasticdl.storage.paths import AnyPath, StorePath
from elasticdl.storage.scratch import new_staging_path, scratch_directory


class PredictionFile:
    """The predictions of one shard: `record`, the id column if there is one, and a column for each model output.

    With `marks_bad_rows` there is a column `error`, too: null for every record that was predicted.
    """

    def __init__(
        self, directory: AnyPath, shard: int, source: RecordSource, id_column: str = "", *, marks_bad_rows: bool = False
    ) -> None:
        self._path = directory / f"part-{shard:06d}.parquet"
        self._source = source
        self._id_column = id_column
        self._marks_bad_rows = marks_bad_rows
        self._tables: list[Any] = []

    def add_predictions(self, records: Indices, predictions: Any) -> None:
        """Add the predictions of these records."""
        import pyarrow as pa  # a fifth of a second that only prediction jobs should wait for

        columns = {"record": pa.array(records)}
        if self._id_column:
            columns[self._id_column] = self._ids(records)
        for name, tensor in _name_outputs(predictions):
            if name in columns:
                raise SpecError(f"prediction.id_column (--id_column): the model has an output {name!r}; rename one")
            columns[name] = _to_column(tensor)
        if self._marks_bad_rows:
            columns["error"] = pa.nulls(len(records), pa.string())
        self._tables.append(pa.table(columns))

    def add_bad_rows(self, bad: Mapping[int, str]) -> None:
        """Add records that cannot be predicted, and why."""
        import pyarrow as pa

        for record, reason in bad.items():
            columns = {"record": pa.array([record], pa.int64())}
            if self._id_column:
                try:
                    columns[self._id_column] = self._ids(np.array([record]))
                except DataError:  # not even the id of this row can be read
                    columns[self._id_column] = pa.nulls(1)
            self._tables.append(pa.table({**columns, "error": pa.array([reason])}))

    def _ids(self, records: Indices) -> Any:
        from elasticdl.data import columns

        return columns.read_columns(self._source, records, {}).column(self._id_column)

    def write(self) -> None:
        """Write the file atomically. Raises CheckpointFailed if the disk or the store does not take it.

        A shard without records, because all were filtered or skipped, has no file.
        """
        if not self._tables:
            return
        import pyarrow.parquet as pq

        if isinstance(self._path, StorePath):
            self._upload(self._path)
            return
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with atomic.open_file(self._path) as file:
                pq.write_table(self._table(), file)
            for leftover in self._path.parent.glob(f".{self._path.name}.*"):  # of a worker that died while it wrote
                leftover.unlink(missing_ok=True)
        except OSError as exc:
            raise CheckpointFailed(f"{self._path}: predictions could not be written: {exc}") from exc

    def _table(self) -> Any:
        import pyarrow as pa

        # Bad rows have no predictions: their columns are null.
        return pa.concat_tables(self._tables, promote_options="default").sort_by("record")

    def _upload(self, target: StorePath) -> None:
        import pyarrow.parquet as pq

        path = new_staging_path(scratch_directory(), target.name)
        try:
            pq.write_table(self._table(), path)
            target.upload(path)
        except (OSError, StoreUnavailable) as exc:
            raise CheckpointFailed(f"{target}: predictions could not be written: {exc}") from exc
        finally:
            path.unlink(missing_ok=True)


def _name_outputs(predictions: Any) -> list[tuple[str, torch.Tensor]]:
    if isinstance(predictions, dict):
        return [(str(name), tensor) for name, tensor in predictions.items()]
    if isinstance(predictions, tuple):
        return [(f"prediction_{index}", tensor) for index, tensor in enumerate(predictions)]
    return [("prediction", predictions)]


def _to_column(tensor: torch.Tensor) -> Any:
    import pyarrow as pa

    values = (tensor.float() if tensor.dtype == torch.bfloat16 else tensor).numpy()
    if values.ndim <= 1:
        return pa.array(values)
    flat = pa.array(values.reshape(-1))
    return pa.FixedSizeListArray.from_arrays(flat, int(np.prod(values.shape[1:])))
