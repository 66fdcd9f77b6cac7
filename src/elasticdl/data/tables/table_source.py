"""A database table as a source of records: rows are fetched in ranges, and the latest ranges are cached."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import partial
from typing import Any, Protocol, TypeVar

import numpy as np

from elasticdl.data import columns as columnar
from elasticdl.data.availability import retry_until_available
from elasticdl.data.column_names import format_names
from elasticdl.data.interface import Indices, Record, Schema, check_indices
from elasticdl.data.readers.parquet import RowGroupCache
from elasticdl.errors import DataError

RANGE_ROWS = 1024  # fetched at once, at least: a shard is shuffled as a whole

T = TypeVar("T")


class TableRows(Protocol):
    """The rows of a table, in an order that is the same in every process and after every restart."""

    @property
    def name(self) -> str: ...

    @property
    def columns(self) -> tuple[str, ...]: ...

    def __len__(self) -> int: ...

    def fetch(self, start: int, stop: int) -> Any:
        """Fetches rows start … stop - 1 as a pyarrow.Table. Raises DatabaseUnavailable for transient errors.

        `start` is a multiple of the rows of a range; `stop` is the next multiple or the end.
        """

    def locate(self, index: int) -> str: ...

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class TableSource:
    """The rows of a table by number."""

    rows: TableRows
    range_rows: int
    retry_s: float
    cache: RowGroupCache
    can_read_ahead: bool = True

    @property
    def name(self) -> str:
        return self.rows.name

    @property
    def columns(self) -> tuple[str, ...]:
        return self.rows.columns

    def __len__(self) -> int:
        return len(self.rows)

    def read(self, indices: Indices) -> list[Record]:
        records: list[Record] = self.read_columns(indices, {}).to_pylist()
        return records

    def read_columns(self, indices: Indices, schema: Schema) -> Any:
        indices = check_indices(indices, len(self), self.name)
        owners, rows = np.divmod(indices, self.range_rows)
        present, range_indices = np.unique(owners, return_inverse=True)
        ranges = [self._fetch_range(owner) for owner in present.tolist() or [0]]
        return columnar.cast_columns(self, columnar.gather_rows(ranges, range_indices, rows), indices, schema)

    def locate(self, index: int) -> str:
        return self.rows.locate(index)

    def close(self) -> None:
        self.cache.clear()
        self.rows.close()

    def _fetch_range(self, number: int) -> Any:
        table = self.cache.get(self.name, number)
        if table is not None:
            return table
        start = number * self.range_rows
        stop = min(start + self.range_rows, len(self))
        table = retry_until_available(partial(self.rows.fetch, start, stop), self.name, self.retry_s)
        if table.num_rows != stop - start:
            raise DataError(
                f"{self.name}: expected {stop - start} rows from {self.locate(start)} on, got {table.num_rows}; the "
                f"table changed while the job was using it: start a new job, and do not change the table while it runs"
            )
        self.cache.put(self.name, number, table)
        return table


def open_table_source(
    open_rows: Callable[[int], TableRows], name: str, shard_records: int, retry_s: float
) -> TableSource:
    """Returns a source of the rows that `open_rows(range_rows)` opens."""
    range_rows = max(RANGE_ROWS, shard_records)
    rows = retry_until_available(partial(open_rows, range_rows), name, retry_s)
    if len(rows) == 0:
        rows.close()
        raise DataError(f"{name}: the table has no rows; check that it is the right one")
    return TableSource(rows, range_rows, retry_s, RowGroupCache())


def select_columns(name: str, requested: Sequence[str], existing: Sequence[str]) -> tuple[str, ...]:
    """Returns the columns to read: the requested ones, or all. Raises DataError for one that does not exist."""
    for column in requested:
        if column not in existing:
            near = get_close_matches(column, existing, n=1)
            hint = f"did you mean {near[0]!r}?" if near else "correct data.columns"
            raise DataError(f"{name}: no column {column!r} among {format_names(existing)}; {hint}")
    return tuple(requested) or tuple(existing)
