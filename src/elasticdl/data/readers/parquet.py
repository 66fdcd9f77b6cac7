"""Reads Parquet files by row group: a record is a dict from column to typed value."""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from elasticdl.data import columns
from elasticdl.data.files.stored_file import StoredFile
from elasticdl.data.interface import Indices, Record, Schema, check_indices
from elasticdl.errors import DataError

CACHE_BYTES = 256 << 20


@dataclass(slots=True)
class RowGroupCache:
    """The row groups decoded last, as many as fit into `max_bytes`, but always the newest one."""

    max_bytes: int = CACHE_BYTES
    _tables: OrderedDict[tuple[str, int], Any] = field(default_factory=OrderedDict)
    _bytes: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def get(self, path: str, group: int) -> Any | None:
        with self._lock:
            table = self._tables.get((path, group))
            if table is not None:
                self._tables.move_to_end((path, group))
            return table

    def put(self, path: str, group: int, table: Any) -> None:
        with self._lock:
            if (path, group) in self._tables:
                return
            self._tables[path, group] = table
            self._bytes += table.nbytes
            while self._bytes > self.max_bytes and len(self._tables) > 1:
                _, oldest = self._tables.popitem(last=False)
                self._bytes -= oldest.nbytes

    def clear(self) -> None:
        with self._lock:
            self._tables.clear()
            self._bytes = 0


@dataclass(frozen=True, slots=True)
class ParquetSource:
    """One Parquet file, opened by `open_parquet`."""

    file: StoredFile
    metadata: Any
    columns: tuple[str, ...]
    ends: Indices  # number past the last record of each row group
    cache: RowGroupCache
    can_read_ahead: bool = True

    @property
    def name(self) -> str:
        return self.file.path

    def __len__(self) -> int:
        return int(self.metadata.num_rows)

    def read(self, indices: Indices) -> list[Record]:
        indices = check_indices(indices, len(self), self.name)
        owners = np.searchsorted(self.ends, indices, side="right")
        records: list[Record] = [None] * len(indices)
        for owner in np.unique(owners).tolist():
            positions = np.flatnonzero(owners == owner)
            rows = self._row_group(owner).take(pa.array(indices[positions] - self._start(owner))).to_pylist()
            for position, row in zip(positions.tolist(), rows, strict=True):
                records[position] = row
        return records

    def read_columns(self, indices: Indices, schema: Schema) -> Any:
        indices = check_indices(indices, len(self), self.name)
        owners = np.searchsorted(self.ends, indices, side="right")
        present, group_indices = np.unique(owners, return_inverse=True)
        groups = [self._row_group(owner) for owner in present.tolist() or [0]]
        starts = np.concatenate([[0], self.ends])[owners]
        return columns.cast_columns(self, columns.gather_rows(groups, group_indices, indices - starts), indices, schema)

    def locate(self, index: int) -> str:
        owner = int(np.searchsorted(self.ends, index, side="right"))
        return f"{self.name}, row group {owner}, row {index - self._start(owner)} of the group"

    def close(self) -> None:
        self.cache.clear()

    def _start(self, owner: int) -> int:
        return int(self.ends[owner - 1]) if owner else 0

    def _row_group(self, number: int) -> Any:
        table = self.cache.get(self.file.path, number)
        if table is not None:
            return table

        def read() -> Any:
            with self.file.open() as stored, pq.ParquetFile(stored, metadata=self.metadata) as opened:
                return opened.read_row_group(number, columns=list(self.columns))

        try:
            table = self.file.read_with_retry(read)
        except (pa.ArrowException, OSError) as exc:
            raise DataError(f"{self.name}, row group {number}: damaged or truncated, write it again: {exc}") from exc
        self.cache.put(self.file.path, number, table)
        return table


def open_parquet(file: StoredFile, columns: tuple[str, ...] = (), cache: RowGroupCache | None = None) -> ParquetSource:
    """Reads the footer and checks the columns."""

    def read_footer() -> tuple[Any, list[str]]:
        with file.open() as stored, pq.ParquetFile(stored) as opened:
            return opened.metadata, opened.schema_arrow.names

    try:
        metadata, names = file.read_with_retry(read_footer)
    except (pa.ArrowException, OSError) as exc:
        raise DataError(
            f"{file.path}, byte {max(0, file.size - 8)}: no complete Parquet file ends here; it is truncated, or has "
            f"another format (then choose it with data.format): {exc}"
        ) from exc
    for column in columns:
        if column not in names:
            near = get_close_matches(column, names, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise DataError(f"{file.path}: no column {column!r}{hint} It has: {', '.join(map(repr, names))}")
    rows = [metadata.row_group(number).num_rows for number in range(metadata.num_row_groups)]
    return ParquetSource(
        file, metadata, columns or tuple(names), np.cumsum(rows, dtype=np.int64), cache or RowGroupCache()
    )
