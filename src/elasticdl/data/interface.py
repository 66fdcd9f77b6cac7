"""What a reader offers: records by their number, in any order, without loading what was not asked for."""

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
"""Called with bytes looked at so far and bytes in all while a source is opened."""

Schema: TypeAlias = Mapping[str, Any]
"""From the name of a column to the Arrow type it is wanted in. Columns that are not in it keep their own."""


class Reader(Protocol):
    """Something read by numbers of records: a source, or a dataset that wants its records as columns."""

    @property
    def can_read_ahead(self) -> bool: ...

    def read(self, indices: Indices) -> Any: ...


@runtime_checkable
class RecordSource(Protocol):
    """Records with numbers 0 … len - 1. May be read by several threads at once.

    `can_read_ahead` is False where reading runs a person's own code, which then
    runs only in the thread that trains, so that its random numbers stay in order.
    """

    @property
    def name(self) -> str: ...

    @property
    def columns(self) -> tuple[str, ...]:
        """Empty where records are not dicts, or each has its own keys."""

    @property
    def can_read_ahead(self) -> bool: ...

    def __len__(self) -> int: ...

    def read(self, indices: Indices) -> list[Record]:
        """The records of these numbers, in this order; DataError names file and position."""

    def locate(self, index: int) -> str:
        """Where record `index` stands, for messages: "train.csv, line 17"."""

    def close(self) -> None:
        """Free what is held; the source is not read again."""


@runtime_checkable
class ColumnarSource(RecordSource, Protocol):
    """A source that gives many records at once without making an object of each."""

    def read_columns(self, indices: Indices, schema: Schema) -> Any:
        """The records of these numbers, in this order, as a pyarrow.RecordBatch with `columns`.

        Columns in `schema` have the types it gives; DataError names the place of a value that cannot have it.
        """


def check_indices(indices: Indices, records: int, name: str) -> Indices:
    """`indices` as int64; IndexError where one is outside 0 … records - 1."""
    indices = np.asarray(indices, dtype=np.int64)
    if indices.size and (int(indices.min()) < 0 or int(indices.max()) >= records):
        raise IndexError(f"{name} has records 0 … {records - 1}, asked for {indices.min()} … {indices.max()}")
    return indices
