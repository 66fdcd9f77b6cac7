"""What is known of a data set's columns. It is JSON with a version, and travels with everything trained on them."""

from __future__ import annotations

import json
from enum import StrEnum
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from elasticdl import atomic
from elasticdl.errors import DataError
from elasticdl.features.vocabulary import CountsField, StringsField

VERSION: Literal[1] = 1


class ColumnKind(StrEnum):
    """Of a column's values."""

    NUMBER = "number"
    TEXT = "text"
    DATE = "date"  # seconds since 1970 in minimum, maximum and quantiles


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class ColumnStatistics(_Frozen):
    """Of one column. A text column has a vocabulary, a number has a range and quantiles, either may have both."""

    kind: ColumnKind
    missing: int
    distinct: int
    is_distinct_exact: bool = True
    is_whole: bool = False  # a number, and every value is an integer
    minimum: float | None = None
    maximum: float | None = None
    mean: float | None = None
    deviation: float | None = None
    quantiles: tuple[float, ...] = ()  # at equal steps from the least to the greatest
    values: StringsField = ()  # the vocabulary: most frequent first, ties by value
    counts: CountsField = ()  # how often each of `values` is there
    least_count: int = 1  # values that are rarer are not in the vocabulary
    is_cut: bool = False  # the vocabulary had more values than were allowed
    separator: str = ""  # text with this inside is a sequence; `values` and `distinct` are of what stands between
    longest: int | None = None  # of sequences
    odd: int = 0  # most values are numbers or dates, and so many are not: the column is text
    odd_examples: tuple[str, ...] = ()


class Statistics(_Frozen):
    """Of a data set, or of a sample of it."""

    version: Literal[1] = VERSION
    source: str  # a path or table, without credentials
    rows: int
    label: str | None = None
    sampled: float = 1.0  # the part of all rows that was looked at
    columns: dict[str, ColumnStatistics]

    def column(self, name: str) -> ColumnStatistics:
        """DataError where there is no such column."""
        if name not in self.columns:
            raise DataError(f"no statistics of column {name!r}; there are those of {', '.join(self.columns)}")
        return self.columns[name]

    def save(self, path: Path) -> None:
        # A column at a time: a copy of all vocabularies is large.
        with atomic.open_file(path) as file:
            file.write((self.model_dump_json(exclude={"columns"})[:-1] + ',"columns":{').encode())
            for place, (name, column) in enumerate(self.columns.items()):
                file.write((("," if place else "") + json.dumps(name, ensure_ascii=False) + ":").encode())
                file.write(column.model_dump_json().encode())
            file.write(b"}}\n")

    @classmethod
    def load(cls, path: Path) -> Statistics:
        """DataError where it is none, or of a version this program does not read."""
        try:
            found = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as exc:
            raise DataError(f"{path}: expected statistics of `elasticdl features analyze`: {exc}") from exc
        version = found.get("version") if isinstance(found, dict) else None
        if version != VERSION:
            raise DataError(f"{path}: expected statistics of version {VERSION}, received {version!r}; analyze again")
        try:
            return cls.model_validate(found)
        except ValidationError as exc:
            first = exc.errors()[0]
            place = ".".join(str(part) for part in first["loc"])
            raise DataError(f"{path}: {place}: {first['msg']}; analyze again") from exc
