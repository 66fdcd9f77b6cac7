"""Proposes transforms for every column from its statistics, each with its reason. Pure."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

from elasticdl.features.statistics import ColumnKind, ColumnStatistics, Statistics

MAX_VOCABULARY = 200_000
"""A larger vocabulary costs more memory than it is worth; its values are hashed."""

MAX_CODES = 32
"""A column of integers with at most this many distinct values may hold codes."""

_MIN_ROWS = 100
_MIN_TARGET_ENCODING_ROWS = 5_000
_MAX_SEQUENCE = 50
_MIN_OVERLAP = 0.9  # of the values in lists, for sharing the ids of another column
_QUANTILES = 20
_MAX_BINS = 1 << 20


@dataclass(frozen=True, slots=True)
class Proposal:
    """One or several transforms, as text, and the reason for them."""

    transforms: tuple[str, ...]
    reason: str


def propose_transforms(statistics: Statistics) -> dict[str, Proposal]:
    """Proposes transforms for every column but the label, in the order of the data."""
    proposals = {
        name: _propose_column(name, column, statistics)
        for name, column in statistics.columns.items()
        if name != statistics.label
    }
    if statistics.label is None or statistics.rows < _MIN_TARGET_ENCODING_ROWS:
        return proposals
    return {name: _with_target_encoding(proposal) for name, proposal in proposals.items()}


def _with_target_encoding(proposal: Proposal) -> Proposal:
    """Adds target encoding to ids, because embeddings of rare values learn little."""
    has_ids = any(text.startswith(("index_lookup", "hashing", "log_square")) for text in proposal.transforms)
    return Proposal((*proposal.transforms, "target_encoding()"), proposal.reason) if has_ids else proposal


def choose_min_count(rows: int, counted: int) -> int:
    """Returns from 2 for small data to 10 for large, but at least what the analysis counted."""
    return max(2, min(10, round(rows / 10_000)), counted)


def _propose_column(name: str, column: ColumnStatistics, statistics: Statistics) -> Proposal:
    present = statistics.rows - column.missing
    if present == 0:
        return Proposal(("drop",), "all values are missing")
    if column.distinct == 1 and column.missing == 0:
        return Proposal(("drop",), "constant: the same value in every row")
    if column.distinct == 1:
        return Proposal(
            ("missing_indicator()",),
            f"one value or none: only its presence says anything{_missing_note(column, present)}",
        )
    if _is_row_identifier(name, column, present):
        if statistics.sample_fraction < 1:
            return Proposal((_hashing(column),), "every row of the sample has its own value; drop it if all rows do")
        share = column.distinct / present
        return Proposal(
            ("drop",), f"{share:.0%} of the values are distinct: it identifies the row and says nothing about others"
        )
    if column.kind is ColumnKind.DATE:
        return Proposal((_date_parts(column),), f"dates{_missing_note(column, present)}")
    if column.separator:
        max_length = min(column.max_length or 1, _MAX_SEQUENCE)
        matching = _find_matching_column(name, column, statistics)
        ids = f"like={_quote_name(matching)}" if matching else f"num_bins={_bins(column.distinct)}"
        text = f'sequence(sep="{_escaped(column.separator)}", max_length={max_length}, {ids})'
        origin = f", which are values of {matching}" if matching else ""
        return Proposal((text,), f"lists of up to {column.max_length} values, {column.distinct:,} distinct{origin}")
    if column.kind is ColumnKind.TEXT:
        return _propose_ids(column, statistics, _text_reason(column, present))
    return _propose_number(name, column, statistics, present)


def _find_matching_column(name: str, column: ColumnStatistics, statistics: Statistics) -> str | None:
    """Finds a column that has the values of these lists, so that both share an embedding."""
    values = set(column.values)
    for candidate_name, candidate in statistics.columns.items():
        is_text = (
            candidate.kind is ColumnKind.TEXT
            and not candidate.separator
            and candidate_name not in (name, statistics.label)
        )
        if is_text and values and len(values & set(candidate.values)) >= _MIN_OVERLAP * len(values):
            has_ids = any(
                text.startswith(("index_lookup", "hashing"))
                for text in _propose_column(candidate_name, candidate, statistics).transforms
            )
            if has_ids:
                return candidate_name
    return None


def _quote_name(name: str) -> str:
    return name if name.isidentifier() else json.dumps(name, ensure_ascii=False)


def _propose_number(name: str, column: ColumnStatistics, statistics: Statistics, present: int) -> Proposal:
    missing = _missing_note(column, present)
    if column.is_integer and column.distinct <= MAX_CODES:
        return _propose_ids(
            column, statistics, f"{column.distinct} distinct integers: codes, or counts that serve as ids{missing}"
        )
    if column.is_integer and _is_id(name, column):
        return _propose_ids(column, statistics, f"{column.distinct:,} integers that look like ids{missing}")
    if _has_long_tail(column):
        reason = f"a long tail: half are up to {_median(column):g}, the maximum is {column.maximum:g}{missing}"
        second = "log_square()" if column.is_integer else f"discretization(quantiles={_QUANTILES})"
        return Proposal(("normalizer(log=true)", second), reason)
    return Proposal(
        ("normalizer()", f"discretization(quantiles={_QUANTILES})"), f"numbers without a long tail{missing}"
    )


def _propose_ids(column: ColumnStatistics, statistics: Statistics, reason: str) -> Proposal:
    present = statistics.rows - column.missing
    count = choose_min_count(statistics.rows, column.min_count)
    # Even the rare ones of a few values are cheap.
    count = column.min_count if column.distinct <= _MIN_ROWS else count
    kept_counts = [times for times in column.counts if times >= count]
    coverage = sum(kept_counts) / present
    if column.is_truncated or len(kept_counts) > MAX_VOCABULARY:
        return Proposal((_hashing(column),), f"{reason}; too many for a vocabulary")
    if coverage < 0.5:
        return Proposal(
            (_hashing(column),), f"{reason}; only {coverage:.0%} of the rows have a value that occurs {count} times"
        )
    return Proposal(
        (f"index_lookup(min_count={count})",),
        f"{reason}; {len(kept_counts):,} occur {count} times, in {coverage:.1%} of rows",
    )


def _text_reason(column: ColumnStatistics, present: int) -> str:
    reason = f"{column.distinct:,} distinct texts{_missing_note(column, present)}"
    if not column.exceptions:
        return reason
    shown = ", ".join(repr(value) for value in column.exception_examples)
    numbers = present - column.exceptions
    return f"MIXED: {numbers:,} numbers or dates and {column.exceptions:,} others such as {shown}: text; {reason}"


def _is_row_identifier(name: str, column: ColumnStatistics, present: int) -> bool:
    if present < _MIN_ROWS or column.separator or column.kind is ColumnKind.DATE:
        return False
    if column.kind is ColumnKind.NUMBER:
        return column.is_integer and column.distinct == present and _is_id(name, column)
    return column.distinct >= 0.95 * present


def _is_id(name: str, column: ColumnStatistics) -> bool:
    """Whether a column holds ids: by its name, or by values spread evenly over a range that no count has."""
    if re.search(r"(^|[_.\s-])(id|key|code|hash)$|[a-z](Id|ID)$", name):
        return True
    if column.minimum is None or column.maximum is None or not column.quantiles:
        return False
    width = column.maximum - column.minimum
    # Either every number of a range, as from a counter, or a few of very many, as from a hash.
    is_dense = column.distinct > 1000 and column.distinct > 0.95 * (width + 1)
    is_even = abs(_median(column) - column.minimum - width / 2) < 0.1 * width
    return is_even and (is_dense or width > 1e8)


def _has_long_tail(column: ColumnStatistics) -> bool:
    if column.minimum is None or column.maximum is None or column.mean is None or not column.standard_deviation:
        return False
    middle = _median(column)
    return column.minimum > -100 and column.mean > 0 and column.maximum - middle > 8 * column.standard_deviation


def _median(column: ColumnStatistics) -> float:
    return column.quantiles[len(column.quantiles) // 2]


def _date_parts(column: ColumnStatistics) -> str:
    day_s = 86_400
    has_hours = any(time % day_s for time in column.quantiles)
    spans_years = (column.maximum or 0) - (column.minimum or 0) > 366 * day_s
    parts = [*(["year"] if spans_years else []), "month", "weekday", *(["hour"] if has_hours else [])]
    if not spans_years and (column.maximum or 0) - (column.minimum or 0) < 62 * day_s:
        parts.remove("month")
    return f"date_parts(parts=[{', '.join(parts)}])"


def _hashing(column: ColumnStatistics) -> str:
    return f"hashing(num_bins={_bins(column.distinct)})"


def _bins(distinct: int) -> int:
    """Returns a power of two, about twice the number of values, so that few values share a bin."""
    return min(_MAX_BINS, 1 << max(4, distinct.bit_length() + 1))


def _missing_note(column: ColumnStatistics, present: int) -> str:
    share = column.missing / (column.missing + present)
    return f", {share:.1%} missing" if column.missing else ""


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')
