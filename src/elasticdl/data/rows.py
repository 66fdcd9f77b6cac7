"""A part of a source by the numbers of its records: `clicks.csv#rows=80%:90%`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from elasticdl.data.interface import Indices, Record, RecordSource, Schema, checked
from elasticdl.errors import DataError

_SUFFIX = re.compile(r"#rows=([^#]*)$")
_BOUND = re.compile(r"(\d+)|(\d+(?:\.\d+)?)%")


@dataclass(frozen=True, slots=True)
class Bound:
    """A number of records, or a share of all, in percent."""

    amount: float
    is_share: bool

    def __str__(self) -> str:
        return f"{self.amount:g}{'%' if self.is_share else ''}"

    def of(self, records: int) -> int:
        return min(records, int(records * self.amount / 100 + 1e-9) if self.is_share else int(self.amount))


@dataclass(frozen=True, slots=True)
class Rows:
    """From `start` on, before `stop`."""

    start: Bound
    stop: Bound

    def __str__(self) -> str:
        return f"{self.start}:{self.stop}"


def split(uri: str) -> tuple[str, Rows | None]:
    """The address without its rows, and those. DataError where they make no sense."""
    match = _SUFFIX.search(uri)
    if match is None:
        return uri, None
    first, colon, last = match[1].partition(":")
    bounds = [_bound(text, uri) for text in (first or "0", last or "100%")]
    if not colon:
        raise DataError(f"{uri}: expected rows as FIRST:LAST, e.g. #rows=0:80% or #rows=1000:2000")
    return uri[: match.start()], Rows(*bounds)


def _bound(text: str, uri: str) -> Bound:
    match = _BOUND.fullmatch(text.strip())
    if match is None or (match[2] is not None and float(match[2]) > 100):
        raise DataError(f"{uri}: expected rows as numbers or percents, e.g. #rows=0:80%; received {text!r}")
    return Bound(float(match[1] or match[2]), match[2] is not None)


class Part:
    """Some records of another source, numbered from 0."""

    def __init__(self, whole: RecordSource, rows: Rows, name: str) -> None:
        start, stop = rows.start.of(len(whole)), rows.stop.of(len(whole))
        if start >= stop:
            raise DataError(f"{name}: no records between {start} and {stop}, of {len(whole)} in all")
        self._whole, self._start, self._length = whole, start, stop - start
        self.name = name

    @property
    def columns(self) -> tuple[str, ...]:
        return self._whole.columns

    @property
    def can_read_ahead(self) -> bool:
        return self._whole.can_read_ahead

    def __len__(self) -> int:
        return self._length

    def read(self, indices: Indices) -> list[Record]:
        return self._whole.read(checked(indices, self._length, self.name) + self._start)

    def read_columns(self, indices: Indices, schema: Schema) -> Any:
        from elasticdl.data import columns

        return columns.read(self._whole, checked(indices, self._length, self.name) + self._start, schema)

    def place(self, index: int) -> str:
        return self._whole.place(index + self._start)

    def close(self) -> None:
        self._whole.close()
