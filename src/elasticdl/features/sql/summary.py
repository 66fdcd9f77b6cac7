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
    """The rows of the summary about one column."""

    counts: defaultdict[str, int] = field(default_factory=lambda: defaultdict(int))
    figures: dict[str, float] = field(default_factory=dict)
    quantiles: list[tuple[int, float]] = field(default_factory=list)
    # A vocabulary is large, so its counts and ranks are no Python objects.
    values: list[str] = field(default_factory=list)
    value_counts: array[int] = field(default_factory=lambda: array("q"))
    value_ranks: array[float] = field(default_factory=lambda: array("d"))
    vocabulary: ColumnVocabulary | None = None  # set if it came whole
    exceptions: list[tuple[int, str]] = field(default_factory=list)


def build_statistics(
    rows: Iterable[SummaryRow | ColumnVocabulary], columns: Sequence[TableColumn], options: AnalysisOptions
) -> tuple[int, dict[str, ColumnStatistics]]:
    """Returns the number of rows, and the statistics of each column in the order of `columns`."""
    summaries = [_ColumnSummary() for _ in columns]
    for row in rows:
        if isinstance(row, ColumnVocabulary):
            summaries[row.column].vocabulary = row
            continue
        index, key, value, count, number = row
        summary = summaries[index]
        # Nearly all rows belong to vocabularies.
        if key == "value" and value is not None and count is not None and number is not None:
            summary.values.append(value)
            summary.value_counts.append(count)
            summary.value_ranks.append(number)
            continue
        match key:
            case "quantile":
                summary.quantiles.append((count or 0, number or 0.0))
            case "odd":
                summary.exceptions.append((count or 0, value or ""))
            case "minimum" | "maximum" | "mean" | "deviation":
                if number is not None:
                    summary.figures[key] = number
            case _:
                summary.counts[key] = count or 0
    total = max((summary.counts["rows"] for summary in summaries), default=0)
    return total, {
        column.name: _build_column(column, summary, total, options)
        for column, summary in zip(columns, summaries, strict=True)
    }


def _build_column(
    column: TableColumn, summary: _ColumnSummary, total: int, options: AnalysisOptions
) -> ColumnStatistics:
    counts = summary.counts
    present = counts["present"]
    is_sequence = present > 0 and counts["separated"] * 2 >= present
    kind = _choose_kind(column, counts["numbers"], counts["dates"], present)
    numbers_or_dates = max(counts["numbers"], counts["dates"])
    is_mixed = kind is ColumnKind.TEXT and not is_sequence and numbers_or_dates * 2 >= present > 0
    values, value_counts = _build_vocabulary(summary)
    examples = sorted(summary.exceptions, key=lambda exception: (-exception[0], exception[1])) if is_mixed else []
    # Without validation: there may be millions of values, and they have the right types already.
    return ColumnStatistics.model_construct(
        kind=kind,
        missing=total - present,
        distinct=counts["words"] if is_sequence else counts["kinds"],
        is_distinct_exact=options.sample == 1,
        is_integer=kind is ColumnKind.NUMBER and present > 0 and counts["fractions"] == 0,
        minimum=summary.figures.get("minimum"),
        maximum=summary.figures.get("maximum"),
        mean=summary.figures.get("mean"),
        standard_deviation=summary.figures.get("deviation"),
        quantiles=select_quantiles(summary.quantiles, present, options.quantile_steps),
        values=values,
        counts=value_counts,
        min_count=options.min_count,
        is_truncated=counts["frequent"] > len(values),
        separator=options.separator if is_sequence else "",
        max_length=counts["longest"] if is_sequence else None,
        exceptions=present - numbers_or_dates if is_mixed else 0,
        exception_examples=tuple(value for _, value in examples),
    )


def _build_vocabulary(summary: _ColumnSummary) -> tuple[Sequence[str], Sequence[int]]:
    if summary.vocabulary is not None:
        return summary.vocabulary.values, summary.vocabulary.counts
    order = np.argsort(np.asarray(summary.value_ranks))
    values = PackedStrings.from_strings([summary.values[rank] for rank in order.tolist()])
    return values, PackedCounts(np.asarray(summary.value_counts, np.int64)[order])


def _choose_kind(column: TableColumn, numbers: int, dates: int, present: int) -> ColumnKind:
    if present == 0:
        # There are no values to judge by, so the database's type decides.
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
    """Returns quantiles at 0/steps … steps/steps from pairs (number of values up to this one, value).

    A quantile is the smallest value with enough values up to it.
    """
    ordered = sorted(reached)
    if not ordered:
        return ()
    points: list[float] = []
    index = 0
    for step in range(steps + 1):
        while ordered[index][0] * steps < step * present:
            index += 1
        points.append(ordered[index][1])
    return tuple(points)
