"""What counts as drift, and what is only chance."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from elasticdl.features import drift
from elasticdl.features.statistics import ColumnKind, ColumnStatistics, Statistics


def numbers(values: np.ndarray, missing: int = 0) -> ColumnStatistics:
    points = np.quantile(values, np.linspace(0, 1, 201), method="inverted_cdf")
    return ColumnStatistics(
        kind=ColumnKind.NUMBER,
        missing=missing,
        distinct=len(np.unique(values)),
        mean=float(values.mean()),
        quantiles=tuple(float(point) for point in points),
    )


def texts(values: Sequence[str]) -> ColumnStatistics:
    counted = Counter(values).most_common()
    return ColumnStatistics(
        kind=ColumnKind.TEXT,
        missing=0,
        distinct=len(counted),
        values=tuple(value for value, _ in counted),
        counts=tuple(count for _, count in counted),
    )


def data(rows: int, label: str | None = None, **columns: ColumnStatistics) -> Statistics:
    return Statistics(source="clicks", rows=rows, label=label, columns=columns)


def findings_text(before: Statistics, now: Statistics) -> str:
    return "\n".join(str(finding) for finding in drift.find_drift(before, now))


@given(st.integers(0, 1000), st.integers(50, 3000))
def test_two_samples_of_the_same_are_alike(seed: int, rows: int) -> None:
    draw = np.random.default_rng(seed)
    before = data(5000, x=numbers(draw.normal(size=5000)), c=texts(draw.choice(list("abcde"), 5000).tolist()))
    now = data(rows, x=numbers(draw.normal(size=rows)), c=texts(draw.choice(list("abcde"), rows).tolist()))

    assert [str(finding) for finding in drift.find_drift(before, now)] == []


def test_a_shifted_number_is_found() -> None:
    draw = np.random.default_rng(0)

    findings = findings_text(
        data(5000, x=numbers(draw.normal(size=5000))), data(5000, x=numbers(draw.normal(1.0, size=5000)))
    )

    assert "x: another distribution" in findings


def test_numbers_outside_the_range_are_found() -> None:
    inside, outside = np.linspace(0, 1, 1000), np.r_[np.linspace(0, 1, 900), np.full(100, 50.0)]

    assert "10% are outside 0 … 1" in findings_text(data(1000, x=numbers(inside)), data(1000, x=numbers(outside)))


def test_missing_values_are_found() -> None:
    values = np.arange(1000.0)

    findings = findings_text(data(1000, x=numbers(values)), data(2000, x=numbers(values, missing=1000)))

    assert findings == "x: 50.0% missing, before 0.0%"


def test_values_out_of_the_vocabulary_are_found() -> None:
    before, now = texts(["a", "b"] * 500), texts(["a", "b", "new", "newer"] * 250)

    assert "50.0% of the values are out of the vocabulary, before 0.0%" in findings_text(
        data(1000, c=before), data(1000, c=now)
    )


def test_other_frequencies_are_found() -> None:
    before, now = texts(["a"] * 900 + ["b"] * 100), texts(["a"] * 100 + ["b"] * 900)

    assert "other frequencies" in findings_text(data(1000, c=before), data(1000, c=now))


def test_another_kind_is_found_with_examples() -> None:
    before, now = numbers(np.arange(100.0)), texts(["n/a"] * 100)

    assert findings_text(data(100, x=before), data(100, x=now)) == "x: text such as 'n/a', before number"


def test_columns_that_came_and_went_are_found() -> None:
    column = numbers(np.arange(100.0))

    findings = drift.find_drift(data(100, "y", x=column, y=column), data(100, z=column))

    assert [(finding.column, finding.is_severe) for finding in findings] == [("x", True), ("y", False), ("z", False)]


def test_another_rate_of_the_label_is_found() -> None:
    rare, common = numbers(np.r_[np.ones(100), np.zeros(900)]), numbers(np.r_[np.ones(300), np.zeros(700)])

    findings = findings_text(data(1000, "y", y=rare), data(1000, "y", y=common))

    assert findings == "y: the label is 1 in 30.00%, before 10.00%"


def test_a_data_set_of_missing_values_only_is_found() -> None:
    empty = ColumnStatistics(kind=ColumnKind.TEXT, missing=100, distinct=0)

    assert findings_text(data(100, c=texts(["a"] * 100)), data(100, c=empty)) == "c: 100.0% missing, before 0.0%"


def test_the_index_of_equal_shares_is_nothing() -> None:
    assert drift.stability_index([0.5, 0.5], [0.5, 0.5], 100) == 0
    assert drift.stability_index([0.5, 0.5], [0.9, 0.1], 100) == pytest.approx(0.8789, abs=1e-4)
