"""Predictions on disk: one Parquet file for each shard, complete or absent."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch

from elasticdl import replacement
from elasticdl.errors import CheckpointFailed


class PredictionFile:
    """The predictions of one shard: a column `record` and one for each output of the model."""

    def __init__(self, directory: Path, shard: int) -> None:
        self._path = directory / f"part-{shard:06d}.parquet"
        self._tables: list[Any] = []

    def add(self, records: np.ndarray[Any, np.dtype[np.int64]], predictions: Any) -> None:
        import pyarrow as pa  # a fifth of a second that only prediction jobs should wait for

        columns = {"record": pa.array(records)}
        for name, tensor in _outputs(predictions):
            columns[name] = _column(tensor)
        self._tables.append(pa.table(columns))

    def write(self) -> None:
        """Put the file in its place, atomically. Raises CheckpointFailed where the disk does not take it."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with replacement.of(self._path) as file:
                pq.write_table(pa.concat_tables(self._tables), file)
            for left in self._path.parent.glob(f".{self._path.name}.*"):  # of a worker that died while it wrote this
                left.unlink(missing_ok=True)
        except OSError as exc:
            raise CheckpointFailed(f"{self._path}: predictions could not be written: {exc}") from exc


def _outputs(predictions: Any) -> list[tuple[str, torch.Tensor]]:
    if isinstance(predictions, dict):
        return [(str(name), tensor) for name, tensor in predictions.items()]
    if isinstance(predictions, tuple):
        return [(f"prediction_{index}", tensor) for index, tensor in enumerate(predictions)]
    return [("prediction", predictions)]


def _column(tensor: torch.Tensor) -> Any:
    import pyarrow as pa

    values = (tensor.float() if tensor.dtype == torch.bfloat16 else tensor).numpy()
    if values.ndim <= 1:
        return pa.array(values)
    flat = pa.array(values.reshape(-1))
    return pa.FixedSizeListArray.from_arrays(flat, int(np.prod(values.shape[1:])))
