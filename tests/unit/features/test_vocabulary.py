"""Vocabularies in little memory."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from elasticdl.errors import DataError
from elasticdl.features.sql import csv_engine
from elasticdl.features.statistics import ColumnKind, ColumnStatistics, Statistics
from elasticdl.features.vocabulary import PackedCounts, PackedStrings

PLACES = st.integers(-12, 12)
SLICES = st.slices(10)


@given(st.lists(st.text(max_size=4), max_size=10), PLACES, SLICES)
def test_values_are_like_a_tuple(texts: list[str], index: int, part: slice) -> None:
    values, same = PackedStrings.from_strings(texts), tuple(texts)

    assert values == same and same == values and values == PackedStrings.from_strings(texts)
    assert (len(values), hash(values), list(values), values[part]) == (len(same), hash(same), texts, same[part])
    if -len(same) <= index < len(same):
        assert values[index] == same[index]
    else:
        with pytest.raises(IndexError):
            values[index]


@given(st.lists(st.integers(0, 2**62), max_size=10), PLACES, SLICES)
def test_counts_are_like_a_tuple(numbers: list[int], index: int, part: slice) -> None:
    counts, same = PackedCounts(np.array(numbers, np.int64)), tuple(numbers)

    assert counts == same and same == counts
    assert (len(counts), hash(counts), list(counts), counts[part]) == (len(same), hash(same), numbers, same[part])
    if -len(same) <= index < len(same):
        assert counts[index] == same[index]
    else:
        with pytest.raises(IndexError):
            counts[index]


def test_other_values_are_not_equal() -> None:
    assert PackedStrings.from_strings(["ab", "c"]) != PackedStrings.from_strings(["a", "bc"])
    assert PackedStrings.from_strings(["a"]) != ["a"]
    assert PackedCounts(np.array([1])) != PackedCounts(np.array([2]))


def statistics(values: object, counts: object) -> Statistics:
    column = {"kind": ColumnKind.TEXT, "missing": 0, "distinct": 2, "values": values, "counts": counts}
    return Statistics(source="clicks", rows=3, columns={'a "名"': ColumnStatistics.model_validate(column)})


def test_what_is_saved_is_what_is_loaded(tmp_path: Path) -> None:
    compact = statistics(PackedStrings.from_strings(["é", '"']), PackedCounts(np.array([2, 1])))
    plain = statistics(["é", '"'], [2, 1])

    compact.save(tmp_path / "statistics.json")

    assert compact == plain
    assert Statistics.load(tmp_path / "statistics.json") == compact
    assert (tmp_path / "statistics.json").read_text() == plain.model_dump_json() + "\n"


@pytest.mark.parametrize(
    ("old", "new", "words"), [('["x"]', "[1]", "list of texts"), ("[7]", '["7"]', "list of whole numbers")]
)
def test_a_vocabulary_of_something_else_is_refused(tmp_path: Path, old: str, new: str, words: str) -> None:
    path = tmp_path / "statistics.json"
    statistics(["x"], [7]).save(path)
    path.write_text(path.read_text().replace(old, new))

    with pytest.raises(DataError, match=words):
        Statistics.load(path)


@pytest.mark.parametrize(
    ("text", "size"), [("512MB", 512_000_000), ("1.5 GB", 1_500_000_000), ("64MiB", 1 << 26), ("2k", 2000)]
)
def test_amounts_of_memory_are_parsed_to_bytes(text: str, size: int) -> None:
    assert csv_engine.parse_memory_size(text) == size


@pytest.mark.parametrize("text", ["much", "", "MB", "-1GB", "0MB", "80%"])
def test_text_that_is_not_an_amount_of_memory_is_refused(text: str) -> None:
    with pytest.raises(DataError, match="--memory: expected an amount"):
        csv_engine.parse_memory_size(text)
