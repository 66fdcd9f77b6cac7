"""The interface of sources: records by their number, in any order, without loading others."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol, TypeAlias, runtime_checkable

import numpy as np
from numpy.typing import NDArray

Record: TypeAlias = Any
"""A dict from column to value (CSV: text; Parquet: typed), a JSON value, bytes (TFRecord), or a Python item."""

Indices: TypeAlias = NDArray[np.int64]
"""Numbers of records, 0 … len(source) - 1."""

ProgressCallback: TypeAlias = Callable[[int, int], None]
"""Called with the bytes read so far and the bytes in total while a source is opened."""

Schema: TypeAlias = Mapping[str, Any]
"""Maps names of columns to Arrow types. Other columns keep their own types."""


class Reader(Protocol):
    """Reads records by their numbers: a source, or a dataset that reads them as columns."""

    @property
    def can_read_ahead(self) -> bool: ...

    def read(self, indices: Indices) -> Any: ...


@runtime_checkable
class RecordSource(Protocol):
    """Records with numbers 0 … len - 1. Several threads may read it at once.

    `can_read_ahead` is False if reading runs the user's own code. That code then
    runs only in the thread that trains, so that its random numbers stay in order.
    """

    @property
    def name(self) -> str: ...

    @property
    def columns(self) -> tuple[str, ...]:
        """Empty if records are not dicts, or if each has keys of its own."""

    @property
    def can_read_ahead(self) -> bool: ...

    def __len__(self) -> int: ...

    def read(self, indices: Indices) -> list[Record]:
        """Reads records in the order of `indices`. A DataError names file and position."""

    def locate(self, index: int) -> str:
        """Returns the location of a record for messages, such as "train.csv, line 17"."""

    def close(self) -> None:
        """Frees resources; the source is not read again."""


@runtime_checkable
class ColumnarSource(RecordSource, Protocol):
    """A source that reads many records as columns, without an object for each."""

    def read_columns(self, indices: Indices, schema: Schema) -> Any:
        """Reads records in the order of `indices` as a pyarrow.RecordBatch with `columns`.

        Columns in `schema` have its types. A DataError names the location of a value that cannot be cast.
        """


def check_indices(indices: Indices, records: int, name: str) -> Indices:
    """Returns `indices` as int64. Raises IndexError if one is outside 0 … records - 1."""
    indices = np.asarray(indices, dtype=np.int64)
    if indices.size and (int(indices.min()) < 0 or int(indices.max()) >= records):
        raise IndexError(f"{name} has records 0 … {records - 1}, asked for {indices.min()} … {indices.max()}")
    return indices
