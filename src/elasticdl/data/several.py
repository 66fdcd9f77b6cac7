"""Many sources read as one: the records of the first, then those of the second, and so on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from elasticdl.data.interface import Indices, Record, RecordSource, Schema, checked
from elasticdl.errors import DataError


@dataclass(frozen=True, slots=True)
class SeveralSources:
    """Made by `concatenate`, which checks that the parts belong together."""

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
        indices = checked(indices, len(self), self.name)
        owners = np.searchsorted(self.ends, indices, side="right")
        records: list[Record] = [None] * len(indices)
        for owner in np.unique(owners).tolist():
            places = np.flatnonzero(owners == owner)
            found = self.parts[owner].read(indices[places] - self._start(owner))
            for place, record in zip(places.tolist(), found, strict=True):
                records[place] = record
        return records

    def read_columns(self, indices: Indices, schema: Schema) -> Any:
        import pyarrow as pa  # takes a fifth of a second: only those who read columns wait for it

        from elasticdl.data import columns

        indices = checked(indices, len(self), self.name)
        owners = np.searchsorted(self.ends, indices, side="right")
        present, places = np.unique(owners, return_inverse=True)
        rows = np.empty(len(indices), dtype=np.int64)
        tables = []
        for place, owner in enumerate(present.tolist() or [0]):
            mine = places == place
            rows[mine] = np.arange(np.count_nonzero(mine))
            batch = columns.read(self.parts[owner], indices[mine] - self._start(owner), schema)
            tables.append(pa.Table.from_batches([batch]))
        return columns.gather(tables, places, rows)

    def place(self, index: int) -> str:
        owner = int(np.searchsorted(self.ends, index, side="right"))
        return self.parts[owner].place(index - self._start(owner))

    def close(self) -> None:
        for part in self.parts:
            part.close()

    def _start(self, owner: int) -> int:
        return int(self.ends[owner - 1]) if owner else 0


def concatenate(name: str, parts: Sequence[RecordSource]) -> RecordSource:
    """One source over `parts`, which must have the same columns in the same order."""
    first = parts[0]
    for part in parts[1:]:
        if part.columns != first.columns:
            raise DataError(
                f"{part.name}: its columns {list(part.columns)} are not the columns {list(first.columns)} of "
                f"{first.name}; read files of the same columns together, or choose columns with data.columns"
            )
    if len(parts) == 1:
        return first
    return SeveralSources(name, tuple(parts), np.cumsum([len(part) for part in parts], dtype=np.int64))
