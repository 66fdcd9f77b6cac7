"""Digits of 28 x 28 pixels in Keras, by the functional API: the net of the original's first tutorial.

elasticdl train --model_zoo=src/elasticdl/zoo --model_def=mnist.functional.forward --data_format=python \
    --training_data=train-images-idx3-ubyte --validation_data=t10k-images-idx3-ubyte
"""

from __future__ import annotations

from typing import Any

import keras
import tensorflow as tf

from elasticdl.data.dataset import Metadata
from elasticdl.model.mode import Mode
from elasticdl.zoo.mnist.idx import IdxImages

SIDE, DIGITS = 28, 10


def forward(dropout: float = 0.25) -> Any:
    image = keras.Input((SIDE, SIDE, 1), name="image")
    x = keras.layers.Conv2D(32, 3, activation="relu")(image)
    x = keras.layers.Conv2D(64, 3, activation="relu")(x)
    x = keras.layers.BatchNormalization()(x)
    x = keras.layers.MaxPooling2D(2)(x)
    x = keras.layers.Dropout(dropout)(x)
    x = keras.layers.Flatten()(x)
    return keras.Model(image, keras.layers.Dense(DIGITS)(x))


def loss(labels: Any, predictions: Any) -> Any:
    return tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=predictions)


def optimizer(lr: float = 0.05) -> Any:
    return keras.optimizers.SGD(lr)


def custom_data_reader(data_path: str) -> IdxImages:
    return IdxImages.open(data_path)


def dataset_fn(dataset: Any, mode: Mode, metadata: Metadata) -> Any:
    def example(image: Any, label: Any) -> Any:
        pixels = tf.cast(image[..., tf.newaxis], tf.float32) / 255
        return pixels if mode is Mode.PREDICTION else (pixels, label)

    return dataset.map(example)


def eval_metrics_fn() -> dict[str, Any]:
    return {"accuracy": keras.metrics.SparseCategoricalAccuracy()}
