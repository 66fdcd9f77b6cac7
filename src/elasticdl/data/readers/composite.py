"""Sources made of other sources: several in a row, or a range of the rows of one (`clicks.csv#rows=80%:90%`)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from elasticdl.data.interface import Indices, Record, RecordSource, Schema, check_indices
from elasticdl.errors import DataError


@dataclass(frozen=True, slots=True)
class ConcatenatedSource:
    """Several sources in a row. `concatenate_sources` makes it, and checks that they have the same columns."""

    name: str
    parts: tuple[RecordSource, ...]
    ends: Indices  # number past the last record of each part

    @property
    def columns(self) -> tuple[str, ...]:
        return self.parts[0].columns

    @property
    def can_read_ahead(self) -> bool:
        return all(part.can_read_ahead for part in self.parts)

    def __len__(self) -> int:
        return int(self.ends[-1])

    def read(self, indices: Indices) -> list[Record]:
        indices = check_indices(indices, len(self), self.name)
        owners = np.searchsorted(self.ends, indices, side="right")
        records: list[Record] = [None] * len(indices)
        for owner in np.unique(owners).tolist():
            positions = np.flatnonzero(owners == owner)
            part = self.parts[owner].read(indices[positions] - self._start(owner))
            for position, record in zip(positions.tolist(), part, strict=True):
                records[position] = record
        return records

    def read_columns(self, indices: Indices, schema: Schema) -> Any:
        import pyarrow as pa  # imported here because it takes a fifth of a second

        from elasticdl.data import columns

        indices = check_indices(indices, len(self), self.name)
        owners = np.searchsorted(self.ends, indices, side="right")
        present, table_indices = np.unique(owners, return_inverse=True)
        rows = np.empty(len(indices), dtype=np.int64)
        tables = []
        for table_index, owner in enumerate(present.tolist() or [0]):
            is_in_part = table_indices == table_index
            rows[is_in_part] = np.arange(np.count_nonzero(is_in_part))
            batch = columns.read_columns(self.parts[owner], indices[is_in_part] - self._start(owner), schema)
            tables.append(pa.Table.from_batches([batch]))
        return columns.gather_rows(tables, table_indices, rows)

    def locate(self, index: int) -> str:
        owner = int(np.searchsorted(self.ends, index, side="right"))
        return self.parts[owner].locate(index - self._start(owner))

    def close(self) -> None:
        for part in self.parts:
            part.close()

    def _start(self, owner: int) -> int:
        return int(self.ends[owner - 1]) if owner else 0


def concatenate_sources(name: str, parts: Sequence[RecordSource]) -> RecordSource:
    """Returns one source over `parts`, which must have the same columns in the same order."""
    first = parts[0]
    for part in parts[1:]:
        if part.columns != first.columns:
            raise DataError(
                f"{part.name}: its columns {list(part.columns)} are not the columns {list(first.columns)} of "
                f"{first.name}; read files of the same columns together, or choose columns with data.columns"
            )
    if len(parts) == 1:
        return first
    return ConcatenatedSource(name, tuple(parts), np.cumsum([len(part) for part in parts], dtype=np.int64))


_SUFFIX = re.compile(r"#rows=([^#]*)$")
_BOUND = re.compile(r"(\d+)|(\d+(?:\.\d+)?)%")


@dataclass(frozen=True, slots=True)
class RowBound:
    """A number of records, or a percentage of all."""

    amount: float
    is_share: bool

    def __str__(self) -> str:
        return f"{self.amount:g}{'%' if self.is_share else ''}"

    def resolve(self, records: int) -> int:
        return min(records, int(records * self.amount / 100 + 1e-9) if self.is_share else int(self.amount))


@dataclass(frozen=True, slots=True)
class RowRange:
    """The rows from `start` on, before `stop`."""

    start: RowBound
    stop: RowBound

    def __str__(self) -> str:
        return f"{self.start}:{self.stop}"


def split_row_range(uri: str) -> tuple[str, RowRange | None]:
    """Splits an address into the address without rows, and the rows. Raises DataError if they are not valid."""
    match = _SUFFIX.search(uri)
    if match is None:
        return uri, None
    first, colon, last = match[1].partition(":")
    bounds = [_parse_bound(text, uri) for text in (first or "0", last or "100%")]
    if not colon:
        raise DataError(f"{uri}: expected rows as FIRST:LAST, e.g. #rows=0:80% or #rows=1000:2000")
    return uri[: match.start()], RowRange(*bounds)


def _parse_bound(text: str, uri: str) -> RowBound:
    match = _BOUND.fullmatch(text.strip())
    if match is None or (match[2] is not None and float(match[2]) > 100):
        raise DataError(f"{uri}: expected rows as numbers or percents, e.g. #rows=0:80%; received {text!r}")
    return RowBound(float(match[1] or match[2]), match[2] is not None)


class RowRangeSource:
    """A range of another source's records, numbered from 0."""

    def __init__(self, source: RecordSource, rows: RowRange, name: str) -> None:
        start, stop = rows.start.resolve(len(source)), rows.stop.resolve(len(source))
        if start >= stop:
            raise DataError(f"{name}: no records between {start} and {stop}, of {len(source)} in total")
        self._source, self._start, self._length = source, start, stop - start
        self.name = name

    @property
    def columns(self) -> tuple[str, ...]:
        return self._source.columns

    @property
    def can_read_ahead(self) -> bool:
        return self._source.can_read_ahead

    def __len__(self) -> int:
        return self._length

    def read(self, indices: Indices) -> list[Record]:
        return self._source.read(check_indices(indices, self._length, self.name) + self._start)

    def read_columns(self, indices: Indices, schema: Schema) -> Any:
        from elasticdl.data import columns

        return columns.read_columns(self._source, check_indices(indices, self._length, self.name) + self._start, schema)

    def locate(self, index: int) -> str:
        return self._source.locate(index + self._start)

    def close(self) -> None:
        self._source.close()
