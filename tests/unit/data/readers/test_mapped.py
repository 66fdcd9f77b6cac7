from __future__ import annotations

import numpy as np
import pytest

from elasticdl.data.interface import RecordSource
from elasticdl.data.order import count_shards, iterate_shards
from elasticdl.data.readers.composite import concatenate_sources
from elasticdl.data.readers.mapped import as_source
from elasticdl.errors import DataError


class Squares:
    def __len__(self) -> int:
        return 5

    def __getitem__(self, index: int) -> int:
        if index == 3:
            raise ValueError("no square today")
        return index * index


class Many(Squares):
    def __getitems__(self, indices: list[int]) -> list[int]:
        return [-index for index in indices]


def test_items_of_a_python_dataset_are_its_records() -> None:
    source = as_source(Squares(), "squares")

    assert isinstance(source, RecordSource)
    assert source.read(np.array([4, 0, 4])) == [16, 0, 16]
    assert not source.can_read_ahead


def test_items_are_read_together_by_getitems() -> None:
    assert as_source(Many(), "many").read(np.array([1, 3])) == [-1, -3]


def test_an_item_that_fails_is_named() -> None:
    with pytest.raises(DataError, match="squares, item 3: ValueError: no square today"):
        as_source(Squares(), "squares").read(np.array([1, 3]))


def test_a_dataset_that_returns_another_number_of_items_is_refused() -> None:
    class Short(Squares):
        def __getitems__(self, indices: list[int]) -> list[int]:
            return indices[1:]

    with pytest.raises(DataError, match="called for 2 items and returned 1"):
        as_source(Short(), "short").read(np.array([1, 2]))


def test_a_source_stays_itself() -> None:
    source = as_source(Squares(), "squares")

    assert as_source(source, "again") is source


@pytest.mark.parametrize(("dataset", "message"), [(3, "expected a dataset with __len__"), ([], "has no items")])
def test_what_is_no_dataset_is_refused(dataset: object, message: str) -> None:
    with pytest.raises(DataError, match=message):
        as_source(dataset, "mine")


def test_several_sources_read_ahead_only_if_all_can() -> None:
    both = concatenate_sources("both", [as_source(Squares(), "a"), as_source(Squares(), "b")])

    assert len(both) == 10
    assert both.read(np.array([9, 1])) == [16, 1]
    assert both.locate(6) == "b, item 1"
    assert not both.can_read_ahead


def test_shards_cover_all_records_and_only_the_last_is_short() -> None:
    assert list(iterate_shards(10, 4)) == [(0, 0, 4), (1, 4, 8), (2, 8, 10)]
    assert list(iterate_shards(8, 4)) == [(0, 0, 4), (1, 4, 8)]
    assert [count_shards(records, 4) for records in (0, 1, 4, 5)] == [0, 1, 1, 2]
