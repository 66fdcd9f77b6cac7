"""dataset_fn over tf.data: the records are those of the plan, whatever it does to them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from elasticdl.data.dataset import Dataset, Mode
from elasticdl.data.readers.mapped import MappedSource
from elasticdl.errors import DataError, ModelError
from elasticdl.keras.adapter.dataset import KerasDataset, build_keras_dataset
from elasticdl.keras.runtime import tf
from elasticdl.model.evaluation import predict_records

NUMBERS = [{"x": float(n), "word": f"w{n}", "ids": list(range(n % 3))} for n in range(20)]


def keras_dataset(
    function: Callable[[Any], Any], records: list[Any] | None = None, mode: Mode = Mode.TRAINING
) -> KerasDataset:
    source = MappedSource(NUMBERS if records is None else records, "made up")
    return build_keras_dataset(source, mode, lambda dataset, *_: function(dataset), Dataset(source).metadata)


def labelled(record: Any) -> tuple[Any, Any]:
    return record["x"] * 2, record["x"]


def test_the_batch_holds_the_records_asked_for_in_their_order() -> None:
    batch = keras_dataset(lambda dataset: dataset.map(labelled)).read_batch(np.array([7, 3, 11]))

    assert batch is not None
    assert (batch.labels.numpy().tolist(), batch.size) == ([7.0, 3.0, 11.0], 3)
    assert batch.features.numpy().tolist() == [14.0, 6.0, 22.0]


def test_dataset_fn_runs_once_for_all_batches() -> None:
    calls = []

    def function(dataset: Any) -> Any:
        calls.append(dataset)
        return dataset.map(labelled)

    dataset = keras_dataset(function)
    for size in (4, 2, 4):
        dataset.read_batch(np.arange(size))

    assert len(calls) == 1


def test_shuffle_asks_the_plan_and_loses_no_record() -> None:
    dataset = keras_dataset(lambda dataset: dataset.map(labelled).shuffle(512))
    batch = dataset.read_batch(np.arange(10))

    assert (dataset.is_shuffled, dataset.window_records) == (True, 512)
    assert batch is not None
    assert sorted(batch.labels.numpy().tolist()) == list(range(10))


def test_a_batch_inside_and_a_prefetch_change_no_record() -> None:
    def function(dataset: Any) -> Any:
        return dataset.map(labelled).batch(3).map(lambda x, y: (x + 1, y)).prefetch(2)

    batch = keras_dataset(function).read_batch(np.arange(7))

    assert batch is not None
    assert batch.features.numpy().tolist() == [2.0 * n + 1 for n in range(7)]
    assert batch.size == 7


def test_filter_leaves_fewer_or_none() -> None:
    dataset = keras_dataset(lambda dataset: dataset.map(labelled).filter(lambda _, label: label > 4))
    batch = dataset.read_batch(np.arange(8))

    assert batch is not None
    assert (batch.size, batch.labels.numpy().tolist()) == (3, [5.0, 6.0, 7.0])
    assert dataset.read_batch(np.arange(4)) is None


def test_lists_of_different_lengths_are_ragged_and_text_is_text() -> None:
    batch = keras_dataset(
        lambda dataset: dataset.map(lambda r: ({"ids": r["ids"], "word": r["word"]}, r["x"]))
    ).read_batch(np.arange(3))

    assert batch is not None
    assert batch.features["ids"].to_list() == [[], [0], [0, 1]]
    assert batch.features["word"].numpy().tolist() == [b"w0", b"w1", b"w2"]


def test_sparse_features_of_examples_stay_sparse() -> None:
    def example(n: int) -> bytes:
        feature = tf.train.Feature(int64_list=tf.train.Int64List(value=range(n)))
        made_up = tf.train.Example(features=tf.train.Features(feature={"ids": feature}))
        return bytes(made_up.SerializeToString())

    def parse(record: Any) -> tuple[Any, Any]:
        return tf.io.parse_single_example(record, {"ids": tf.io.VarLenFeature(tf.int64)})["ids"], 1

    batch = keras_dataset(lambda dataset: dataset.map(parse), [example(n) for n in range(4)]).read_batch(
        np.array([3, 0, 1])
    )

    assert batch is not None
    assert tf.sparse.to_dense(batch.features).numpy().tolist() == [[0, 1, 2], [0, 0, 0], [0, 0, 0]]
    assert batch.size == 3


def test_prediction_has_no_labels() -> None:
    batch = keras_dataset(lambda dataset: dataset.map(lambda r: r["x"]), mode=Mode.PREDICTION).read_batch(np.arange(2))

    assert batch is not None and batch.labels is None


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (lambda d: d.map(labelled).repeat(2), "leave out dataset.repeat"),
        (lambda d: d.map(labelled).take(2), "leave out dataset.take"),
        (lambda d: d.skip(1).map(labelled), "leave out dataset.skip"),
        (lambda d: d.shard(2, 0).map(labelled), "leave out dataset.shard"),
        (lambda d: d.map(labelled).batch(2, drop_remainder=True), "drop_remainder"),
        (lambda d: 5, "expected a tf.data.Dataset. Received: int"),
        (lambda d: d.map(lambda r: r["nothing"]), "dataset_fn failed: KeyError"),
    ],
)
def test_what_would_train_other_records_is_refused(function: Callable[[Any], Any], expected: str) -> None:
    with pytest.raises(ModelError, match=expected):
        keras_dataset(function)


def test_records_without_labels_are_refused_in_training() -> None:
    with pytest.raises(ModelError, match=r"expected each record to become \(features, labels\)"):
        _ = keras_dataset(lambda dataset: dataset.map(lambda r: r["x"])).spec


def test_a_record_that_cannot_be_parsed_is_named() -> None:
    def parse(record: Any) -> tuple[Any, Any]:
        return tf.strings.to_number(record), 1

    dataset = keras_dataset(lambda dataset: dataset.map(parse), ["1.5", "not a number"])

    with pytest.raises(DataError, match="made up, item 0 … made up, item 1: dataset_fn failed"):
        dataset.read_batch(np.arange(2))


def test_a_record_of_another_type_than_the_first_is_named() -> None:
    dataset = keras_dataset(lambda dataset: dataset.map(lambda r: (r["a"], 1)), [{"a": 1}, {"a": "x"}])

    with pytest.raises(DataError, match="item 1 and those after it"):
        dataset.read_batch(np.array([1]))


class TornSource(MappedSource):
    """Its second record cannot be read."""

    def read(self, indices: Any) -> list[Any]:
        if 1 in indices:
            raise DataError("line 3 is torn")
        return super().read(indices)


def parsed(dataset: Any) -> Any:
    return dataset.map(lambda record: tf.strings.to_number(record["x"]))


def test_predictions_begin_though_one_of_the_first_records_is_torn() -> None:
    source = TornSource([{"x": "1"}, {"x": "2"}, {"x": "three"}, {"x": "4"}], "torn")

    dataset = build_keras_dataset(
        source, Mode.PREDICTION, lambda dataset, *_: parsed(dataset), Dataset(source).metadata
    )
    first, second = predict_records(nn.Identity(), dataset, 0, 4, 3, torch.device("cpu"), tolerates_bad_rows=True)

    assert (first.records.tolist(), second.records.tolist()) == ([0], [3])
    assert first.bad[1] == "line 3 is torn"
    assert first.bad[2].endswith("dataset_fn failed: StringToNumberOp could not correctly convert string: three")
    with pytest.raises(DataError, match="line 3 is torn"):
        build_keras_dataset(source, Mode.TRAINING, lambda dataset, *_: parsed(dataset), Dataset(source).metadata)
