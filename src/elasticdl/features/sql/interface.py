"""The interface of analysis engines, and the options of an analysis."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

SummaryRow = tuple[int, str, str | None, int | None, float | None]
"""A row of the summary: the index of the column, a key, and the value, count or number under that key."""


@dataclass(frozen=True, slots=True)
class ColumnVocabulary:
    """The vocabulary of a column as a whole: the most frequent values first, ties by value."""

    column: int
    values: Sequence[str]
    counts: Sequence[int]


AnalysisProgress = Callable[[str, float], None]
"""Called with the current activity and the fraction of all work that is done, from 0 to 1."""


class ColumnForm(StrEnum):
    """The type of a column in a database. Text may still hold numbers or dates; its values decide."""

    TEXT = "text"
    WHOLE = "whole"
    REAL = "real"  # may be infinite, or not a number
    TRUTH = "truth"
    LIST = "list"
    DATE = "date"  # its text is in ISO 8601
    ZONED = "zoned"  # a date with a time zone


@dataclass(frozen=True, slots=True)
class TableColumn:
    name: str
    form: ColumnForm = ColumnForm.TEXT
    stored_name: str = ""  # the name in the engine, if it differs

    @property
    def engine_name(self) -> str:
        return self.stored_name or self.name


@dataclass(frozen=True, slots=True)
class AnalysisOptions:
    """Options of an analysis."""

    min_count: int = 2  # rarer values are left out of vocabularies
    max_values: int = 100_000  # in a vocabulary
    separator: str = "|"  # between the values of a sequence in one text
    sample: float = 1.0
    seed: int = 0
    quantile_steps: int = 200  # one fewer than quantiles
    max_rows: int | None = None  # reads only this many rows from the start

    @property
    def is_partial(self) -> bool:
        return self.sample < 1 or self.max_rows is not None


class AnalysisEngine(Protocol):
    """An open table. `close` leaves nothing behind."""

    name: str  # the address, without credentials

    def columns(self) -> Sequence[TableColumn]:
        """Returns all columns in the order of the table."""
        ...

    def summarize(
        self, columns: Sequence[TableColumn], options: AnalysisOptions, progress: AnalysisProgress
    ) -> Iterator[SummaryRow | ColumnVocabulary]:
        """Yields the rows of `queries.summary_query` from one scan of the table; vocabularies may come whole."""
        ...

    def close(self) -> None: ...
