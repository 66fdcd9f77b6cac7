"""Statistics of a data set's columns: JSON with a version, which stays with everything trained on them."""

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
    """The kind of a column's values."""

    NUMBER = "number"
    TEXT = "text"
    DATE = "date"  # seconds since 1970 in minimum, maximum and quantiles


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class ColumnStatistics(_Frozen):
    """Statistics of one column. Text has a vocabulary, numbers have a range and quantiles; either may have both."""

    kind: ColumnKind
    missing: int
    distinct: int
    is_distinct_exact: bool = True
    is_integer: bool = False  # every value is an integer
    minimum: float | None = None
    maximum: float | None = None
    mean: float | None = None
    standard_deviation: float | None = None
    quantiles: tuple[float, ...] = ()  # at equal steps from the minimum to the maximum
    values: StringsField = ()  # the vocabulary: the most frequent first, ties by value
    counts: CountsField = ()  # how often each of `values` occurs
    min_count: int = 1  # rarer values are not in the vocabulary
    is_truncated: bool = False  # the vocabulary had more values than allowed
    separator: str = ""  # text with this inside is a sequence; `values` and `distinct` count its pieces
    max_length: int | None = None  # the pieces of the longest sequence
    exceptions: int = 0  # values that are no numbers or dates in a column that mostly has them: it is taken as text
    exception_examples: tuple[str, ...] = ()


class Statistics(_Frozen):
    """Statistics of a data set, or of a sample of it."""

    version: Literal[1] = VERSION
    source: str  # a path or table, without credentials
    rows: int
    label: str | None = None
    sample_fraction: float = 1.0  # the fraction of all rows that was read
    columns: dict[str, ColumnStatistics]

    def column(self, name: str) -> ColumnStatistics:
        """Returns the statistics of a column. Raises DataError if there is no such column."""
        if name not in self.columns:
            raise DataError(f"no statistics of column {name!r}; there are those of {', '.join(self.columns)}")
        return self.columns[name]

    def save(self, path: Path) -> None:
        # A column at a time: a copy of all vocabularies is large.
        with atomic.open_file(path) as file:
            file.write((self.model_dump_json(exclude={"columns"})[:-1] + ',"columns":{').encode())
            for index, (name, column) in enumerate(self.columns.items()):
                file.write((("," if index else "") + json.dumps(name, ensure_ascii=False) + ":").encode())
                file.write(column.model_dump_json().encode())
            file.write(b"}}\n")

    @classmethod
    def load(cls, path: Path) -> Statistics:
        """Loads a file. Raises DataError if it holds no statistics, or those of another version."""
        try:
            document = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as exc:
            raise DataError(f"{path}: expected statistics of `elasticdl features analyze`: {exc}") from exc
        version = document.get("version") if isinstance(document, dict) else None
        if version != VERSION:
            raise DataError(f"{path}: expected statistics of version {VERSION}, received {version!r}; analyze again")
        try:
            return cls.model_validate(document)
        except ValidationError as exc:
            first = exc.errors()[0]
            path_in_file = ".".join(str(part) for part in first["loc"])
            raise DataError(f"{path}: {path_in_file}: {first['msg']}; analyze again") from exc
