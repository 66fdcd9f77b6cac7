"""Statistics of a data set: the same after they are written and read again, or DataError says what is wrong."""

from __future__ import annotations

import math
from collections.abc import Iterator

from elasticdl.errors import DataError
from elasticdl.features.statistics import ColumnKind, ColumnStatistics, Statistics
from tests.fuzz.scratch import directory, file_with


def fuzz_one(data: bytes) -> None:
    try:
        statistics = Statistics.load(file_with(data, "statistics.json"))
    except DataError:
        return
    again = directory() / "again.json"
    statistics.save(again)
    # NaN differs from itself, but its text does not.
    assert repr(Statistics.load(again)) == repr(statistics)


def seeds() -> Iterator[bytes]:
    number = ColumnStatistics(
        kind=ColumnKind.NUMBER, missing=1, distinct=3, minimum=-1.0, maximum=2.5, mean=0.5, standard_deviation=math.pi,
        quantiles=(-1, 0, 2.5),
    )  # fmt: skip
    text = ColumnStatistics(
        kind=ColumnKind.TEXT, missing=0, distinct=2, values=("a", "ü"), counts=(5, 2), separator="|"
    )
    path = directory() / "seed.json"
    for columns in ({}, {"age": number}, {"age": number, "who": text}):
        Statistics(source="here.csv", rows=9, label="age" if columns else None, columns=columns).save(path)
        yield path.read_bytes()
