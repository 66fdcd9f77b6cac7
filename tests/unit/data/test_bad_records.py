"""Records that cannot be read or understood: once more, then skipped and named, up to a limit."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from elasticdl.data.bad_records import BadRecords
from elasticdl.data.dataset import Dataset
from elasticdl.data.readers.mapped import as_source
from elasticdl.data.sources import open_source
from elasticdl.errors import BadRecord, DataError, TooManyBadRecords
from elasticdl.spec import DataSpec

NUMBERS = np.arange(6)


def allowing(limit: int, reports: list[tuple[int, str]], source: Any, **options: Any) -> Dataset:
    return Dataset(
        source,
        bad_records=BadRecords(limit, lambda source, record, reason: reports.append((record, reason))),
        **options,
    )


def lines(tmp_path: Path, *bad: int) -> Any:
    path = tmp_path / "a.csv"
    path.write_text("x,y\n" + "".join(f"{n}\n" if n in bad else f"{n},{n}\n" for n in NUMBERS))
    return open_source(str(path), DataSpec(bad_records=9))


def pair(record: dict[str, str]) -> tuple[float, int]:
    return float(record["x"]) + random.random(), int(record["y"])


def seed() -> None:
    random.seed(7)


def test_bad_records_are_left_out_as_a_filter_would(tmp_path: Path) -> None:
    reports: list[tuple[int, str]] = []
    skipping = allowing(2, reports, lines(tmp_path, 1, 4)).map(pair)
    (tmp_path / "other").mkdir()
    filtered = Dataset(lines(tmp_path / "other")).filter(lambda record: record["x"] not in "14").map(pair)

    batch = skipping.read_valid_batch(NUMBERS, seed=seed)
    seed()
    expected = filtered.read_batch(NUMBERS)

    assert batch is not None and expected is not None
    assert batch.features.tolist() == expected.features.tolist(), "random numbers, too"
    assert [record for record, _ in reports] == [1, 4]
    assert "a.csv, line 3: expected 2 fields" in reports[0][1]


def test_a_bad_record_is_reported_once_however_often_it_is_read(tmp_path: Path) -> None:
    reports: list[tuple[int, str]] = []
    dataset = allowing(1, reports, lines(tmp_path, 1)).map(pair)

    for _ in range(3):
        assert dataset.read_valid_batch(NUMBERS) is not None

    assert len(reports) == 1


def test_a_batch_of_bad_records_only_is_empty(tmp_path: Path) -> None:
    dataset = allowing(2, [], lines(tmp_path, 1, 4)).map(pair)

    assert dataset.read_valid_batch(np.array([1, 4])) is None


def test_more_than_the_limit_are_an_error_that_names_the_last(tmp_path: Path) -> None:
    dataset = allowing(1, [], lines(tmp_path, 1, 4)).map(pair)

    with pytest.raises(TooManyBadRecords, match=r"2 records are bad, 1 may be .*line 6: expected 2 fields"):
        dataset.read_valid_batch(NUMBERS)


def test_without_a_limit_the_first_is_an_error_that_names_the_option(tmp_path: Path) -> None:
    with pytest.raises(BadRecord, match=r"line 3: expected 2 fields .*\(--bad_records=N skips"):
        Dataset(lines(tmp_path, 1)).map(pair).read_valid_batch(NUMBERS)


def test_a_function_that_fails_once_costs_nothing_and_draws_the_same_numbers() -> None:
    failures = [1]

    def flaky(number: int) -> tuple[float, int]:
        drawn = random.random()
        if number == 3 and failures:
            raise RuntimeError(failures.pop())
        return drawn, number

    source, reports = as_source(list(range(6)), "numbers"), list[tuple[int, str]]()
    batch = allowing(0, reports, source).map(flaky).read_valid_batch(NUMBERS, seed=seed)
    seed()
    expected = Dataset(source).map(flaky).read_batch(NUMBERS)

    assert batch is not None and expected is not None
    assert batch.features.tolist() == expected.features.tolist()
    assert reports == []


@pytest.mark.parametrize("late", ["map_batches", "map_columns"])
def test_functions_of_batches_are_called_with_single_records_after_an_error(tmp_path: Path, late: str) -> None:
    def parse(batch: Any) -> Any:
        values = [float(str(value)) for value in batch["y"]]
        return np.array(values), np.array(values)

    path = tmp_path / "a.csv"
    path.write_text("x,y\n" + "".join(f"{n},{'much' if n == 2 else n}\n" for n in NUMBERS))
    reports: list[tuple[int, str]] = []
    dataset = getattr(allowing(1, reports, open_source(str(path), DataSpec())), late)(parse)

    batch = dataset.read_valid_batch(NUMBERS)

    assert batch is not None and batch.labels.tolist() == [0, 1, 3, 4, 5]
    assert [record for record, _ in reports] == [2]


def test_a_batch_whose_records_are_all_good_alone_is_an_error() -> None:
    def parse(items: list[int]) -> Any:
        if len(items) > 1:
            raise ValueError("too many")
        return np.array(items), np.array(items)

    dataset = allowing(9, [], as_source(list(range(6)), "numbers")).map_batches(parse)

    with pytest.raises(DataError, match="too many"):
        dataset.read_valid_batch(NUMBERS)


def test_a_changed_file_is_no_bad_record(tmp_path: Path) -> None:
    reports: list[tuple[int, str]] = []
    dataset = allowing(9, reports, lines(tmp_path)).map(pair)
    (tmp_path / "a.csv").write_text("x,y\n")

    with pytest.raises(DataError, match="the file changed"):
        dataset.read_valid_batch(NUMBERS)
    assert reports == []
