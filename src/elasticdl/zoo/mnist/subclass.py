"""Digits of 28 x 28 pixels in Keras, by a class of one's own: the net of functional.py, and all else as there.

elasticdl train --model_zoo=src/elasticdl/zoo --model_def=mnist.subclass.Digits --data_format=python \
    --training_data=train-images-idx3-ubyte --validation_data=t10k-images-idx3-ubyte
"""

from __future__ import annotations

from typing import Any

import keras

from elasticdl.zoo.mnist.functional import (
    DIGITS,
    custom_data_reader,
    dataset_fn,
    eval_metrics_fn,
    loss,
    optimizer,
)

__all__ = ["Digits", "custom_data_reader", "dataset_fn", "eval_metrics_fn", "loss", "optimizer"]


class Digits(keras.Model):
    def __init__(self, dropout: float = 0.25) -> None:
        super().__init__()
        self.first = keras.layers.Conv2D(32, 3, activation="relu")
        self.second = keras.layers.Conv2D(64, 3, activation="relu")
        self.norm = keras.layers.BatchNormalization()
        self.pool = keras.layers.MaxPooling2D(2)
        self.dropout = keras.layers.Dropout(dropout)
        self.flatten = keras.layers.Flatten()
        self.scores = keras.layers.Dense(DIGITS)

    def call(self, image: Any, training: bool = False) -> Any:
        x = self.norm(self.second(self.first(image)), training=training)
        return self.scores(self.flatten(self.dropout(self.pool(x), training=training)))
