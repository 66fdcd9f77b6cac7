"""Small models, and the contract of a model file written on the spot."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from elasticdl.data.dataset import Mode
from elasticdl.data.readers.mapped import MappedSource
from elasticdl.keras.adapter import contract as contracts
from elasticdl.keras.adapter.contract import KerasContract
from elasticdl.keras.embeddings.placement import IN_MODEL, EmbeddingPlacement
from elasticdl.spec import JobKind, ModelSpec

DENSE = """
import keras
import tensorflow as tf

def forward(hidden=4):
    x = keras.Input((3,), name="x")
    y = keras.layers.BatchNormalization()(keras.layers.Dense(hidden, activation="relu")(x))
    return keras.Model(x, keras.layers.Dense(1)(keras.layers.Dropout(0.5)(y)))

def loss(labels, predictions):
    return tf.reduce_mean((labels - predictions[:, 0]) ** 2)

def optimizer(lr=0.1):
    return keras.optimizers.Adam(lr)

def dataset_fn(dataset, mode, metadata):
    return dataset.map(lambda x, y: ({"x": x}, y))
"""

RECORDS = [(np.array([float(n % 5), float(n % 3), 1.0], np.float32), float(n % 2)) for n in range(24)]


def contract_of(
    tmp_path: Path, source: str, records: list[Any], placing: EmbeddingPlacement = IN_MODEL, **params: Any
) -> KerasContract:
    """The contract of a file with this source, which has seen these records."""
    (tmp_path / "net.py").write_text(source)
    spec = ModelSpec(zoo=str(tmp_path), definition="net.forward", params=params)
    contract = contracts.load_keras_contract(spec, JobKind.TRAINING, placing)
    contract.make_dataset(MappedSource(records, "made up"), Mode.TRAINING)
    return contract
