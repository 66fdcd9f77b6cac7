"""Builds statistics from the rows of an analysis summary. Pure."""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from elasticdl.features.sql.interface import AnalysisOptions, ColumnForm, ColumnVocabulary, SummaryRow, TableColumn
from elasticdl.features.statistics import ColumnKind, ColumnStatistics
from elasticdl.features.vocabulary import PackedCounts, PackedStrings


@dataclass(slots=True)
class _ColumnSummary:
    """What the rows tell of one column."""

    counts: defaultdict[str, int] = field(default_factory=lambda: defaultdict(int))
    figures: dict[str, float] = field(default_factory=dict)
    quantiles: list[tuple[int, float]] = field(default_factory=list)
    # A vocabulary is large: no object for each of its counts and places.
    words: list[str] = field(default_factory=list)
    often: array[int] = field(default_factory=lambda: array("q"))
    places: array[float] = field(default_factory=lambda: array("d"))
    vocabulary: ColumnVocabulary | None = None  # where it came whole
    odd: list[tuple[int, str]] = field(default_factory=list)


def build_statistics(
    rows: Iterable[SummaryRow | ColumnVocabulary], columns: Sequence[TableColumn], question: AnalysisOptions
) -> tuple[int, dict[str, ColumnStatistics]]:
    """How many rows there are, and the statistics of each column in the order of `columns`."""
    gathered = [_ColumnSummary() for _ in columns]
    for row in rows:
        if isinstance(row, ColumnVocabulary):
            gathered[row.column].vocabulary = row
            continue
        place, what, value, count, number = row
        into = gathered[place]
        # Nearly all rows are of vocabularies.
        if what == "value" and value is not None and count is not None and number is not None:
            into.words.append(value)
            into.often.append(count)
            into.places.append(number)
            continue
        match what:
            case "quantile":
                into.quantiles.append((count or 0, number or 0.0))
            case "odd":
                into.odd.append((count or 0, value or ""))
            case "minimum" | "maximum" | "mean" | "deviation":
                if number is not None:
                    into.figures[what] = number
            case _:
                into.counts[what] = count or 0
    total = max((one.counts["rows"] for one in gathered), default=0)
    return total, {
        column.name: _build_column(column, one, total, question) for column, one in zip(columns, gathered, strict=True)
    }


def _build_column(
    column: TableColumn, found: _ColumnSummary, total: int, question: AnalysisOptions
) -> ColumnStatistics:
    counts = found.counts
    present = counts["present"]
    is_sequence = present > 0 and counts["separated"] * 2 >= present
    kind = _choose_kind(column, counts["numbers"], counts["dates"], present)
    numbers_or_dates = max(counts["numbers"], counts["dates"])
    is_mixed = kind is ColumnKind.TEXT and not is_sequence and numbers_or_dates * 2 >= present > 0
    words, often = _build_vocabulary(found)
    # Not looked through again: there may be millions of values, and they are of these types.
    return ColumnStatistics.model_construct(
        kind=kind,
        missing=total - present,
        distinct=counts["words"] if is_sequence else counts["kinds"],
        is_distinct_exact=question.sample == 1,
        is_whole=kind is ColumnKind.NUMBER and present > 0 and counts["fractions"] == 0,
        minimum=found.figures.get("minimum"),
        maximum=found.figures.get("maximum"),
        mean=found.figures.get("mean"),
        deviation=found.figures.get("deviation"),
        quantiles=select_quantiles(found.quantiles, present, question.quantile_steps),
        values=words,
        counts=often,
        least_count=question.min_count,
        is_cut=counts["frequent"] > len(words),
        separator=question.separator if is_sequence else "",
        longest=counts["longest"] if is_sequence else None,
        odd=present - numbers_or_dates if is_mixed else 0,
        odd_examples=tuple(value for _, value in sorted(found.odd, key=lambda odd: (-odd[0], odd[1])))
        if is_mixed
        else (),
    )


def _build_vocabulary(found: _ColumnSummary) -> tuple[Sequence[str], Sequence[int]]:
    if found.vocabulary is not None:
        return found.vocabulary.values, found.vocabulary.counts
    order = np.argsort(np.asarray(found.places))
    words = PackedStrings.from_strings([found.words[place] for place in order.tolist()])
    return words, PackedCounts(np.asarray(found.often, np.int64)[order])


def _choose_kind(column: TableColumn, numbers: int, dates: int, present: int) -> ColumnKind:
    if present == 0:
        # Nothing to see: what the database says.
        native = {
            ColumnForm.WHOLE: ColumnKind.NUMBER,
            ColumnForm.REAL: ColumnKind.NUMBER,
            ColumnForm.TRUTH: ColumnKind.NUMBER,
        }
        native |= {ColumnForm.DATE: ColumnKind.DATE, ColumnForm.ZONED: ColumnKind.DATE}
        return native.get(column.form, ColumnKind.TEXT)
    if numbers == present:
        return ColumnKind.NUMBER
    return ColumnKind.DATE if dates == present else ColumnKind.TEXT


def select_quantiles(reached: Sequence[tuple[int, float]], present: int, steps: int) -> tuple[float, ...]:
    """At 0/steps … steps/steps, from (how many values are up to here, value): the least value with enough up to it."""
    ordered = sorted(reached)
    if not ordered:
        return ()
    points: list[float] = []
    place = 0
    for step in range(steps + 1):
        while ordered[place][0] * steps < step * present:
            place += 1
        points.append(ordered[place][1])
    return tuple(points)
