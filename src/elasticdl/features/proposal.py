"""Proposes transforms for every column from its statistics, each with its reason. Pure."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

from elasticdl.features.statistics import ColumnKind, ColumnStatistics, Statistics

MAX_VOCABULARY = 200_000
"""A vocabulary above this costs more memory than it earns: its values are hashed."""

MAX_CODES = 32
"""Whole numbers with at most so many distinct values may be codes."""

_MIN_ROWS = 100
_MIN_TARGET_ENCODING_ROWS = 5_000
_MAX_SEQUENCE = 50
_MIN_OVERLAP = 0.9  # of the things of a list
_QUANTILES = 20
_MAX_BINS = 1 << 20


@dataclass(frozen=True, slots=True)
class Proposal:
    """One treatment or several, as text, and why."""

    transforms: tuple[str, ...]
    reason: str


def propose_transforms(statistics: Statistics) -> dict[str, Proposal]:
    """For every column but the label, in the order of the data."""
    found = {
        name: _propose_column(name, column, statistics)
        for name, column in statistics.columns.items()
        if name != statistics.label
    }
    has_clicks = statistics.label is not None and statistics.rows >= _MIN_TARGET_ENCODING_ROWS
    return {name: _with_target_encoding(one) for name, one in found.items()} if has_clicks else found


def _with_target_encoding(proposal: Proposal) -> Proposal:
    """Where values are ids, what is known of their clicks helps: embeddings of rare ones know little."""
    has_ids = any(text.startswith(("lookup", "hash", "log_square")) for text in proposal.transforms)
    return Proposal((*proposal.transforms, "clicked()"), proposal.reason) if has_ids else proposal


def choose_min_count(rows: int, counted: int) -> int:
    """Values that are rarer are unknown: 2 in small data, up to 10 in large, and never below what was counted."""
    return max(2, min(10, round(rows / 10_000)), counted)


def _propose_column(name: str, column: ColumnStatistics, statistics: Statistics) -> Proposal:
    present = statistics.rows - column.missing
    if present == 0:
        return Proposal(("drop",), "all values are missing")
    if column.distinct == 1 and column.missing == 0:
        return Proposal(("drop",), "constant: the same value in every row")
    if column.distinct == 1:
        return Proposal(
            ("missing()",), f"one value or none: that it is there is all it tells{_missing_note(column, present)}"
        )
    if _is_row_identifier(name, column, present):
        if statistics.sampled < 1:
            return Proposal((_hashing(column),), "every row of the sample has its own value; drop it if all rows have")
        share = column.distinct / present
        return Proposal(
            ("drop",), f"{share:.0%} of the values are distinct: it names the row, and tells nothing of others"
        )
    if column.kind is ColumnKind.DATE:
        return Proposal((_date_parts(column),), f"dates{_missing_note(column, present)}")
    if column.separator:
        longest = min(column.longest or 1, _MAX_SEQUENCE)
        other = _find_matching_column(name, column, statistics)
        ids = f"like={_quote_name(other)}" if other else f"bins={_bins(column.distinct)}"
        text = f'sequence(sep="{_escaped(column.separator)}", longest={longest}, {ids})'
        same = f", which are values of {other}" if other else ""
        return Proposal((text,), f"lists of up to {column.longest} things, {column.distinct:,} distinct{same}")
    if column.kind is ColumnKind.TEXT:
        return _propose_ids(column, statistics, _text_reason(column, present))
    return _propose_number(name, column, statistics, present)


def _find_matching_column(name: str, column: ColumnStatistics, statistics: Statistics) -> str | None:
    """Another column whose values the things of a list are: what is the same shares an embedding."""
    things = set(column.values)
    for other, found in statistics.columns.items():
        is_text = found.kind is ColumnKind.TEXT and not found.separator and other not in (name, statistics.label)
        if is_text and things and len(things & set(found.values)) >= _MIN_OVERLAP * len(things):
            has_ids = any(
                text.startswith(("lookup", "hash")) for text in _propose_column(other, found, statistics).transforms
            )
            if has_ids:
                return other
    return None


def _quote_name(name: str) -> str:
    return name if name.isidentifier() else json.dumps(name, ensure_ascii=False)


def _propose_number(name: str, column: ColumnStatistics, statistics: Statistics, present: int) -> Proposal:
    missing = _missing_note(column, present)
    if column.is_whole and column.distinct <= MAX_CODES:
        return _propose_ids(
            column, statistics, f"{column.distinct} distinct whole numbers: codes, or counts that serve as ids{missing}"
        )
    if column.is_whole and _is_id(name, column):
        return _propose_ids(column, statistics, f"{column.distinct:,} whole numbers that look like ids{missing}")
    if _has_long_tail(column):
        why = f"a long tail: half are up to {_median(column):g}, the greatest is {column.maximum:g}{missing}"
        second = "log_square()" if column.is_whole else f"discretize(quantiles={_QUANTILES})"
        return Proposal(("normalize(log=true)", second), why)
    return Proposal(("normalize()", f"discretize(quantiles={_QUANTILES})"), f"numbers without a long tail{missing}")


def _propose_ids(column: ColumnStatistics, statistics: Statistics, why: str) -> Proposal:
    present = statistics.rows - column.missing
    count = choose_min_count(statistics.rows, column.least_count)
    # Of a handful of values even the rare ones are cheap.
    count = column.least_count if column.distinct <= _MIN_ROWS else count
    kept = [times for times in column.counts if times >= count]
    known = sum(kept) / present
    if column.is_cut or len(kept) > MAX_VOCABULARY:
        return Proposal((_hashing(column),), f"{why}; too many for a vocabulary")
    if known < 0.5:
        return Proposal(
            (_hashing(column),), f"{why}; only {known:.0%} of the rows have a value that is there {count} times"
        )
    return Proposal(
        (f"lookup(min_count={count})",), f"{why}; {len(kept):,} are there {count} times, in {known:.1%} of rows"
    )


def _text_reason(column: ColumnStatistics, present: int) -> str:
    why = f"{column.distinct:,} distinct texts{_missing_note(column, present)}"
    if not column.odd:
        return why
    shown = ", ".join(repr(value) for value in column.odd_examples)
    return f"MIXED: {present - column.odd:,} numbers or dates and {column.odd:,} others such as {shown}: text; {why}"


def _is_row_identifier(name: str, column: ColumnStatistics, present: int) -> bool:
    if present < _MIN_ROWS or column.separator or column.kind is ColumnKind.DATE:
        return False
    if column.kind is ColumnKind.NUMBER:
        return column.is_whole and column.distinct == present and _is_id(name, column)
    return column.distinct >= 0.95 * present


def _is_id(name: str, column: ColumnStatistics) -> bool:
    """By its name, or since its values are spread evenly over a range that no count has."""
    if re.search(r"(^|[_.\s-])(id|key|code|hash)$|[a-z](Id|ID)$", name):
        return True
    if column.minimum is None or column.maximum is None or not column.quantiles:
        return False
    width = column.maximum - column.minimum
    # Either every number of a range, as a counter gives, or a few of very many, as a hash does.
    is_dense = column.distinct > 1000 and column.distinct > 0.95 * (width + 1)
    is_even = abs(_median(column) - column.minimum - width / 2) < 0.1 * width
    return is_even and (is_dense or width > 1e8)


def _has_long_tail(column: ColumnStatistics) -> bool:
    if column.minimum is None or column.maximum is None or column.mean is None or not column.deviation:
        return False
    middle = _median(column)
    return column.minimum > -100 and column.mean > 0 and column.maximum - middle > 8 * column.deviation


def _median(column: ColumnStatistics) -> float:
    return column.quantiles[len(column.quantiles) // 2]


def _date_parts(column: ColumnStatistics) -> str:
    day_s = 86_400
    has_hours = any(at % day_s for at in column.quantiles)
    spans_years = (column.maximum or 0) - (column.minimum or 0) > 366 * day_s
    parts = [*(["year"] if spans_years else []), "month", "weekday", *(["hour"] if has_hours else [])]
    if not spans_years and (column.maximum or 0) - (column.minimum or 0) < 62 * day_s:
        parts.remove("month")
    return f"date(parts=[{', '.join(parts)}])"


def _hashing(column: ColumnStatistics) -> str:
    return f"hash(bins={_bins(column.distinct)})"


def _bins(distinct: int) -> int:
    """About twice as many as values, so that few share one; a power of two."""
    return min(_MAX_BINS, 1 << max(4, distinct.bit_length() + 1))


def _missing_note(column: ColumnStatistics, present: int) -> str:
    share = column.missing / (column.missing + present)
    return f", {share:.1%} missing" if column.missing else ""


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')
