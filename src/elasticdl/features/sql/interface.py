"""The interface of analysis engines, and the options of an analysis."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

Cell = str | int | float | None
SummaryRow = tuple[int, str, str | None, int | None, float | None]
"""Of the summary: number of the column, what it tells, and the value, count or number that it tells."""


@dataclass(frozen=True, slots=True)
class ColumnVocabulary:
    """All values of a column that are told, at once: most frequent first, ties by value."""

    column: int
    values: Sequence[str]
    counts: Sequence[int]


AnalysisProgress = Callable[[str, float], None]
"""What is being done, and how much of all is done, from 0 to 1."""


class ColumnForm(StrEnum):
    """How a database holds a column. Text may still be numbers or dates: the values tell."""

    TEXT = "text"
    WHOLE = "whole"
    REAL = "real"  # may be infinite, or not a number
    TRUTH = "truth"
    LIST = "list"
    DATE = "date"  # text of it is as in ISO 8601
    ZONED = "zoned"  # a date with a time zone


@dataclass(frozen=True, slots=True)
class TableColumn:
    name: str
    form: ColumnForm = ColumnForm.TEXT
    stored_name: str = ""  # the name under which the engine has it, if that is another

    @property
    def engine_name(self) -> str:
        return self.stored_name or self.name


@dataclass(frozen=True, slots=True)
class AnalysisOptions:
    """What to find out about columns."""

    min_count: int = 2  # values that are rarer do not come into a vocabulary
    max_values: int = 100_000  # of a vocabulary
    separator: str = "|"  # of sequences in text
    sample: float = 1.0
    seed: int = 0
    quantile_steps: int = 200  # between quantiles
    max_rows: int | None = None  # only so many, the first ones

    @property
    def is_partial(self) -> bool:
        return self.sample < 1 or self.max_rows is not None


class AnalysisEngine(Protocol):
    """A place with one table, open. `close` leaves nothing behind."""

    name: str  # the address, without credentials

    def columns(self) -> Sequence[TableColumn]:
        """All of the table's, in its order."""
        ...

    def summarize(
        self, columns: Sequence[TableColumn], question: AnalysisOptions, progress: AnalysisProgress
    ) -> Iterator[SummaryRow | ColumnVocabulary]:
        """The rows of `generate.summary`, of one scan of the table; vocabularies may come whole."""
        ...

    def close(self) -> None: ...
