"""Statistics of a data set: read and written again they are the same, or DataError says what is wrong."""

from __future__ import annotations

import math
from collections.abc import Iterator

from elasticdl.errors import DataError
from elasticdl.features.statistics import ColumnKind, ColumnStatistics, Statistics
from tests.fuzz.scratch import directory, file_with


def fuzz_one(data: bytes) -> None:
    try:
        found = Statistics.load(file_with(data, "statistics.json"))
    except DataError:
        return
    again = directory() / "again.json"
    found.save(again)
    assert _plain(Statistics.load(again)) == _plain(found)


def _plain(found: Statistics) -> str:
    return repr(found)  # NaN equals itself in words


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
