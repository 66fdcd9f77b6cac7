"""A dataset_fn of arrays, and a model that is exported as another one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from elasticdl.data.dataset import Mode
from elasticdl.data.readers.mapped import MappedSource
from elasticdl.errors import ModelError
from elasticdl.keras.runtime import tf
from tests.unit.keras.models import contract_of

COLUMNS = """
import keras
import numpy as np
import tensorflow as tf
from elasticdl.keras import ServedModel, numpy_dataset

class Doubled(ServedModel):
    def __init__(self):
        super().__init__()
        self.dense = keras.layers.Dense(1)
    def call(self, features):
        return self.dense(features["x"])
    def served(self):
        return Words(self), {"text": tf.TensorSpec([None], tf.string)}

class Words(keras.Model):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner
    def call(self, features):
        return self.inner({"x": tf.strings.to_number(features["text"])[:, tf.newaxis]})

def forward():
    return Doubled()

def loss(labels, predictions):
    return tf.reduce_mean((labels - predictions[:, 0]) ** 2)

def optimizer(lr=0.1):
    return keras.optimizers.SGD(lr)

@numpy_dataset
def dataset_fn(dataset, mode, metadata):
    def parse(columns):
        features = {"x": np.array(columns["text"].to_pylist(), np.float32)[:, None]}
        return features if mode == "prediction" else (features, features["x"][:, 0] * 2)
    return dataset.map_columns(parse)
"""
RECORDS: list[Any] = [{"text": str(number / 8)} for number in range(24)]


def test_columns_become_tensors_of_any_number_of_rows(tmp_path: Path) -> None:
    contract = contract_of(tmp_path, COLUMNS, RECORDS)
    dataset = contract.make_dataset(MappedSource(RECORDS, "made up"), Mode.TRAINING)

    features, labels = dataset.spec
    batch = dataset.read_batch(np.array([8, 0]))

    assert features["x"] == tf.TensorSpec([None, 1], tf.float32) and labels == tf.TensorSpec([None], tf.float32)
    assert batch is not None and batch.size == 2
    assert batch.features["x"].numpy().tolist() == [[1.0], [0.0]] and batch.labels.numpy().tolist() == [2.0, 0.0]
    assert dataset.read_batch(np.array([], np.int64)) is None


def test_it_trains_and_is_exported_as_the_model_that_is_served(tmp_path: Path) -> None:
    contract = contract_of(tmp_path, COLUMNS, RECORDS)
    batch = contract.make_dataset(MappedSource(RECORDS, "made up"), Mode.TRAINING).read_batch(np.arange(24))
    assert batch is not None
    model = contract.build_model()
    optimizer = contract.build_optimizer(model)
    losses = []
    for _ in range(20):
        optimizer.zero_grad()
        loss = contract.batch_loss(model, batch.features, batch.labels)
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < 0.1 * losses[0]

    contract.export(model, batch.features, tmp_path / "out", {"step": 20})

    program = tf.saved_model.load(str(tmp_path / "out"))
    served = program.serve({"text": tf.constant(["0.5", "7"])}).numpy()
    np.testing.assert_array_equal(served, model.eval()({"x": tf.constant([[0.5], [7.0]])}).numpy())


def test_what_is_no_dataset_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"expected the dataset it was given\. Received: int"):
        contract_of(tmp_path, COLUMNS.replace("return dataset.map_columns(parse)", "return 5"), RECORDS)
