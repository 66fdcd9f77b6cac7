from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from elasticdl.data.collate import columns_from_records, stack_arrays
from elasticdl.data.dataset import Dataset, Metadata, Mode
from elasticdl.data.readers.mapped import as_source
from elasticdl.data.sources import open_source
from elasticdl.errors import DataError, ModelError
from elasticdl.spec import DataSpec


def dataset_of(items: list[Any], mode: Mode = Mode.TRAINING) -> Dataset:
    return Dataset(as_source(items, "items"), mode)


def table(tmp_path: Path, mode: Mode = Mode.TRAINING) -> Dataset:
    (tmp_path / "a.csv").write_text("x,y\n1,0\n2,1\nthree,1\n4,0\n")
    return Dataset(open_source(str(tmp_path / "a.csv"), DataSpec()), mode)


def test_map_and_filter_run_in_their_order_on_each_record() -> None:
    dataset = dataset_of([1, 2, 3, 4]).map(lambda n: n * 10).filter(lambda n: n != 20).map(lambda n: n + 1)

    assert dataset.read_items(np.array([3, 1, 0])) == [41, 11]


def test_each_method_gives_a_new_dataset() -> None:
    plain = dataset_of([1, 2])

    plain.map(lambda n: n + 1).shuffle(100)

    assert plain.read_items(np.array([0])) == [1]
    assert not plain.is_shuffled


def test_items_become_features_and_labels() -> None:
    batch = dataset_of([1, 2, 3]).map(lambda n: (np.full(2, n, dtype=np.uint8), n % 2)).read_batch(np.array([2, 0]))

    assert batch is not None and batch.size == 2
    assert batch.features.tolist() == [[3, 3], [1, 1]] and batch.features.dtype == np.uint8
    assert batch.labels.tolist() == [1, 1] and batch.labels.dtype == np.int64


def test_python_floats_become_float32_and_numpy_values_keep_their_type() -> None:
    assert stack_arrays([1.5, 2]).dtype == np.float32
    assert stack_arrays([[1, 2.5], [3, 4]]).dtype == np.float32
    assert stack_arrays([np.float64(1.5)]).dtype == np.float64
    assert stack_arrays([np.zeros(2, np.float64)]).dtype == np.float64
    assert stack_arrays([True, False]).dtype == np.bool_
    assert stack_arrays([1, 2]).dtype == np.int64
    assert stack_arrays(["a", "bcd"]).tolist() == ["a", "bcd"]


def test_dicts_and_tuples_are_stacked_part_by_part() -> None:
    batch = dataset_of([1, 2]).map(lambda n: ({"a": n, "b": (float(n), [n, n])}, n)).read_batch(np.array([0, 1]))

    assert batch is not None
    assert batch.features["a"].tolist() == [1, 2]
    assert batch.features["b"][0].tolist() == [1.0, 2.0]
    assert batch.features["b"][1].tolist() == [[1, 1], [2, 2]]


def test_another_stack_function_takes_the_place_of_numpys() -> None:
    dataset = Dataset(as_source([(1, 2), (3, 4)], "pairs"), stack=lambda values: ["stacked", *values])

    batch = dataset.read_batch(np.array([0, 1]))

    assert batch is not None and batch.features == ["stacked", 1, 3] and batch.labels == ["stacked", 2, 4]


def test_a_batch_of_which_nothing_is_left_is_none() -> None:
    dataset = dataset_of([1, 2]).filter(lambda n: n > 5)

    assert dataset.read_batch(np.array([0, 1])) is None
    assert dataset.map_batches(lambda batch: (batch, batch)).read_batch(np.array([0])) is None
    assert dataset_of([1]).read_batch(np.array([], dtype=np.int64)) is None


def test_map_batches_gets_columns_as_arrays(tmp_path: Path) -> None:
    dataset = table(tmp_path).map_batches(lambda columns: (columns["x"].astype(np.float32), columns["y"]))

    batch = dataset.read_batch(np.array([3, 0]))

    assert batch is not None and batch.size == 2
    assert batch.features.tolist() == [4.0, 1.0]
    assert batch.labels.tolist() == ["0", "0"]


def test_map_batches_gets_a_list_where_records_are_no_dicts_and_the_result_of_the_one_before() -> None:
    dataset = dataset_of([b"a", b"bc"]).map_batches(lambda records: [len(r) for r in records])

    batch = dataset.map_batches(lambda lengths: (np.array(lengths), np.zeros(2))).read_batch(np.array([1, 0]))

    assert batch is not None and batch.features.tolist() == [2, 1]


def test_columns_keep_numbers_as_they_were_stored_and_all_else_as_objects() -> None:
    columns = columns_from_records(
        [
            {"f": 1.5, "i": 1, "b": True, "s": "a", "n": None, "l": [1, 2], "r": [1], "d": b"a\x00"},
            {"f": 2.5, "i": 2, "b": False, "s": "bc", "n": 1, "l": [3, 4], "r": [1, 2], "d": b"b"},
        ]
    )

    assert {name: column.dtype.kind for name, column in columns.items()} == dict(
        zip("fibsnlrd", "fibOOiOO", strict=True)
    )
    assert columns["l"].shape == (2, 2)
    assert columns["d"][0] == b"a\x00"


def test_prediction_needs_no_labels() -> None:
    dataset = dataset_of([1, 2], Mode.PREDICTION)

    single, paired = (
        dataset.map(float).read_batch(np.array([1])),
        dataset.map(lambda n: (n, n)).read_batch(np.array([1])),
    )
    late = dataset.map_batches(lambda numbers: np.array(numbers)).read_batch(np.array([0, 1]))

    assert single is not None and single.features.tolist() == [2.0] and single.labels is None
    assert paired is not None and paired.labels.tolist() == [2]
    assert late is not None and late.size == 2 and late.labels is None


def test_training_without_labels_is_refused() -> None:
    with pytest.raises(ModelError, match=r"expected each record to become \(features, labels\), got a int"):
        dataset_of([1]).read_batch(np.array([0]))
    with pytest.raises(ModelError, match=r"expected \(features, labels\), got a ndarray"):
        dataset_of([1]).map_batches(np.array).read_batch(np.array([0]))


def test_nothing_but_map_batches_may_follow_map_batches() -> None:
    dataset = dataset_of([1]).map_batches(lambda batch: batch)

    with pytest.raises(ModelError, match=r"map\(.*\) follows map_batches\(.*put it before"):
        dataset.map(lambda n: n)
    with pytest.raises(ModelError, match="expected a function, got int"):
        dataset_of([1]).map(3)  # type: ignore[arg-type]


def test_the_place_of_shuffle_does_not_matter_and_its_window_is_kept() -> None:
    early = dataset_of([1]).shuffle(5000).map(lambda n: n)
    late = dataset_of([1]).map_batches(lambda batch: batch).shuffle()

    assert early.is_shuffled and early.window_records == 5000
    assert late.is_shuffled and late.window_records == 0
    with pytest.raises(ModelError, match="1 or more, got 0"):
        late.shuffle(0)


def test_a_function_that_fails_names_the_record_by_file_and_line(tmp_path: Path) -> None:
    dataset = table(tmp_path).map(lambda record: (float(record["x"]), int(record["y"])))

    with pytest.raises(
        DataError, match=r"a\.csv, line 4: map\(.*\) of dataset_fn failed: ValueError: could not convert"
    ):
        dataset.read_batch(np.array([0, 2]))


def test_a_batch_function_that_fails_names_the_first_record(tmp_path: Path) -> None:
    dataset = table(tmp_path).map_batches(lambda columns: (columns["z"], columns["y"]))

    with pytest.raises(DataError, match=r"a\.csv, line 3 and 1 more records: map_batches\(.* KeyError: 'z'"):
        dataset.read_batch(np.array([1, 2]))


def test_parts_of_different_length_are_refused() -> None:
    dataset = dataset_of([1, 2]).map_batches(lambda batch: (np.zeros((2, 3)), np.zeros(1)))

    with pytest.raises(DataError, match=r"different numbers of records: \{0: 2, 1: 1\}"):
        dataset.read_batch(np.array([0, 1]))
    with pytest.raises(DataError, match=r"one row for each record, got float"):
        dataset_of([1]).map_batches(lambda batch: (1.0, batch)).read_batch(np.array([0]))


@pytest.mark.parametrize(
    ("items", "message"),
    [
        ([(np.zeros(2), 0), (np.zeros(3), 0)], r"\[0\] cannot be stacked into a batch: .*shapes.*\(2,\), \(3,\)"),
        ([([1], 0), ([1, 2], 0)], r"\[0\] cannot be stacked"),
        ([({"a": 1}, 0), ({"b": 1}, 0)], r"\[0\] has the keys \['a'\] in one record and \['b'\]"),
        ([((1, 2), 0), ((1, 2, 3), 0)], r"\[0\] is a tuple of 2 in one record"),
        ([(object(), 0)], r"cannot be stacked into a batch: no numbers: object"),
    ],
)
def test_items_that_do_not_fit_together_are_refused(items: list[Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        dataset_of(items).read_batch(np.arange(len(items)))


def test_metadata_has_columns_records_and_name(tmp_path: Path) -> None:
    assert table(tmp_path).metadata == Metadata(("x", "y"), 4, str(tmp_path / "a.csv"))
