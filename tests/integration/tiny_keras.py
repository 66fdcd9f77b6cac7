"""A Keras model file for tests of whole jobs: a plain embedding layer that moves, one of any ids, and a dense layer."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import tensorflow as tf

from elasticdl.keras import Embedding

RECORDS = 205


def forward() -> Any:
    user = keras.Input((), dtype="int64", name="user")
    words = keras.Input((None,), dtype="int64", ragged=True, name="words")
    users = keras.layers.Embedding(40, 4)(user)
    texts = Embedding(4, combiner="mean", name="texts")(words)
    score = keras.layers.Dense(1)(keras.layers.Concatenate()([users, texts]))
    return keras.Model({"user": user, "words": words}, score)


def loss(labels: Any, predictions: Any) -> Any:
    return tf.nn.sigmoid_cross_entropy_with_logits(labels=labels, logits=predictions[:, 0])


def optimizer(lr: float = 0.1) -> Any:
    return keras.optimizers.Adagrad(lr)


def custom_data_reader(data_path: str) -> list[dict[str, Any]]:
    """A user likes a text if the sum of the user's bias and of those of its words is positive."""
    numbers = np.random.default_rng(4)
    people, words = numbers.normal(size=40), numbers.normal(size=30)
    records: list[dict[str, Any]] = []
    for _ in range(RECORDS):
        user, text = int(numbers.integers(40)), numbers.integers(30, size=numbers.integers(5)).tolist()
        liked = people[user] + sum(words[word] for word in text) > 0
        records.append({"user": user, "words": [10**12 + word for word in text], "liked": float(liked)})
    return records


def dataset_fn(dataset: Any, mode: str, metadata: Any) -> Any:
    def split(record: dict[str, Any]) -> Any:
        features = {"user": record["user"], "words": record["words"]}
        return features if mode == "prediction" else (features, record["liked"])

    return dataset.map(split)


def eval_metrics_fn() -> dict[str, Any]:
    return {"auc": keras.metrics.AUC(from_logits=True)}
