"""Transformations by the name of a column: from statistics that are given, or that are current."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from elasticdl.errors import DataError
from elasticdl.features import (
    Clip,
    Discretization,
    Hashing,
    IndexLookup,
    LogRound,
    Normalizer,
    RoundIdentity,
    use_statistics,
)
from elasticdl.features.statistics import ColumnKind, ColumnStatistics, Statistics

NUMBER = ColumnStatistics(
    kind=ColumnKind.NUMBER,
    missing=0,
    distinct=11,
    minimum=0,
    maximum=100,
    mean=3,
    standard_deviation=2,
    quantiles=(0, 1, 1, 1, 1, 5, 6, 7, 8, 9, 100),
)
TEXT = ColumnStatistics(
    kind=ColumnKind.TEXT, missing=0, distinct=40, values=("a", "b", "c"), counts=(9, 5, 2), min_count=2
)
FOUND = Statistics(
    source="made up",
    rows=99,
    columns={
        "I1": NUMBER,
        "C1": TEXT,
        "one": NUMBER.model_copy(update={"standard_deviation": 0.0}),
        "below": NUMBER.model_copy(update={"minimum": -1.0}),
    },
)


@pytest.mark.parametrize(
    ("make_transform", "expected"),
    [
        (lambda: Normalizer.from_statistics("I1"), Normalizer(3, 2)),
        (lambda: Normalizer.from_statistics("one"), Normalizer(3, 1)),
        (lambda: Discretization.from_statistics("I1", quantiles=5), Discretization([1, 6, 8])),
        (lambda: Clip.from_statistics("I1", lower=0.1, upper=0.9), Clip(1, 9)),
        (lambda: LogRound.from_statistics("I1", base=10), LogRound(3, base=10)),
        (lambda: RoundIdentity.from_statistics("I1"), RoundIdentity(101)),
        (lambda: Hashing.from_statistics("C1"), Hashing(40)),
        (lambda: Hashing.from_statistics("C1", bins_per_value=2.5), Hashing(100)),
        (lambda: IndexLookup.from_statistics("C1", min_count=5), IndexLookup(["a", "b"])),
        (lambda: IndexLookup.from_statistics("C1", min_count=2, num_oov_tokens=3), IndexLookup(["a", "b", "c"], 3)),
    ],
)
def test_from_statistics_makes_the_expected_transform(make_transform: Any, expected: Any) -> None:
    with use_statistics(FOUND):
        assert make_transform() == expected


def test_statistics_are_passed_or_current_or_the_error_asks_for_them(tmp_path: Path) -> None:
    FOUND.save(tmp_path / "statistics.json")

    assert Normalizer.from_statistics("I1", statistics=FOUND) == Normalizer(3, 2)
    assert Normalizer.from_statistics("I1", statistics=tmp_path / "statistics.json") == Normalizer(3, 2)
    with use_statistics(tmp_path / "statistics.json") as current:
        assert current == FOUND
        assert Normalizer.from_statistics("I1") == Normalizer(3, 2)
    with pytest.raises(DataError, match="no statistics for column 'I1': pass them"):
        Normalizer.from_statistics("I1")


@pytest.mark.parametrize(
    ("make_transform", "complaint"),
    [
        (lambda: Normalizer.from_statistics("C1"), "column 'C1': its statistics have no mean"),
        (lambda: Discretization.from_statistics("C1"), "have no quantiles"),
        (lambda: Clip.from_statistics("C1"), "have no quantiles"),
        (lambda: IndexLookup.from_statistics("I1"), "have no vocabulary; use Hashing"),
        (
            lambda: IndexLookup.from_statistics("C1", min_count=1),
            "only values that occur 2 times or more. Received: min_count=1",
        ),
        (lambda: RoundIdentity.from_statistics("below"), "expected numbers from 0. Received: -1"),
        (lambda: Hashing.from_statistics("C9"), "no statistics of column 'C9'"),
    ],
)
def test_statistics_that_do_not_fit_are_refused(make_transform: Any, complaint: str) -> None:
    with use_statistics(FOUND), pytest.raises(DataError, match=complaint):
        make_transform()
