"""Statistics in plain NumPy, for comparison: small tables only."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime

import numpy as np

from elasticdl.features.sql.interface import AnalysisOptions
from elasticdl.features.statistics import ColumnKind, ColumnStatistics

_NUMBER = re.compile(r" *[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[12]?[0-9]?[0-9])? *")


def expected(values: Sequence[str | None], question: AnalysisOptions) -> ColumnStatistics:
    """Of one column that was read from text."""
    present = [value for value in values if value is not None and not _is_blank(value)]
    numbers = [float(value) for value in present if _NUMBER.fullmatch(value)]
    dates = [seconds for value in present if (seconds := _seconds(value)) is not None]
    sequences = [value for value in present if question.separator in value]
    is_sequence = bool(present) and len(sequences) * 2 >= len(present)
    kind = ColumnKind.TEXT
    if present and len(numbers) == len(present):
        kind = ColumnKind.NUMBER
    elif present and len(dates) == len(present):
        kind = ColumnKind.DATE
    points = np.array(numbers if kind is ColumnKind.NUMBER else dates if kind is ColumnKind.DATE else [])
    words = (
        [piece for value in present for piece in value.split(question.separator) if piece] if is_sequence else present
    )
    counted = sorted(Counter(words).items(), key=lambda word: (-word[1], word[0]))
    frequent = [(value, count) for value, count in counted if count >= question.min_count]
    is_whole = kind is ColumnKind.NUMBER and bool(np.all(points == np.floor(points)))
    if kind is ColumnKind.NUMBER and not is_whole and len(counted) > 1000:
        frequent = []
    is_mixed = kind is ColumnKind.TEXT and not is_sequence and 0 < len(present) <= 2 * max(len(numbers), len(dates))
    odd = Counter(value for value in present if not _is_like(value, len(numbers) >= len(dates)))
    return ColumnStatistics(
        kind=kind,
        missing=len(values) - len(present),
        distinct=len(counted),
        is_integer=is_whole,
        minimum=float(points.min()) if len(points) else None,
        maximum=float(points.max()) if len(points) else None,
        mean=float(points.mean()) if len(points) else None,
        standard_deviation=float(points.std()) if len(points) else None,
        quantiles=_quantiles(points, question.quantile_steps),
        values=tuple(value for value, _ in frequent[: question.max_values]),
        counts=tuple(count for _, count in frequent[: question.max_values]),
        min_count=question.min_count,
        is_truncated=len(frequent) > question.max_values,
        separator=question.separator if is_sequence else "",
        max_length=max(value.count(question.separator) + 1 for value in present) if is_sequence else None,
        exceptions=odd.total() if is_mixed else 0,
        exception_examples=tuple(
            value for value, _ in sorted(odd.items(), key=lambda exception: (-exception[1], exception[0]))[:5]
        )
        if is_mixed
        else (),
    )


def _quantiles(points: np.ndarray, steps: int) -> tuple[float, ...]:
    if not len(points):
        return ()
    ordered = np.sort(points)
    # The least value with at least step/steps of all up to it, in whole numbers.
    indices = [max(-(-step * len(points) // steps), 1) - 1 for step in range(steps + 1)]
    return tuple(float(ordered[index]) for index in indices)


def _is_blank(value: str) -> bool:
    return all(unicodedata.category(character) == "Zs" for character in value)


def _seconds(value: str) -> float | None:
    if not re.fullmatch(r"[12]\d{3}-\d\d-\d\d([ T]\d\d:\d\d(:\d\d)?Z?)?", value, re.ASCII):
        return None
    try:
        return datetime.fromisoformat(value.rstrip("Z")).replace(tzinfo=UTC).timestamp()
    except ValueError:
        return None


def _is_like(value: str, as_numbers: bool) -> bool:
    return bool(_NUMBER.fullmatch(value)) if as_numbers else _seconds(value) is not None


def close(ours: ColumnStatistics, theirs: ColumnStatistics) -> None:
    """The same, but for the last digits of the mean and the deviation."""
    for name in ("mean", "standard_deviation"):
        our_value, theirs_value = getattr(ours, name), getattr(theirs, name)
        assert (our_value is None) == (theirs_value is None)
        if our_value is not None:
            scale = max(abs(theirs.minimum or 0.0), abs(theirs.maximum or 0.0), 1e-300)
            np.testing.assert_allclose(our_value, theirs_value, rtol=1e-6, atol=1e-7 * scale)
    rounded = {"mean": None, "standard_deviation": None}
    assert ours.model_copy(update=rounded) == theirs.model_copy(update=rounded)
