"""A Keras model of the zoo bound to a front, for the model file that `ctr.yaml` makes with `model: keras/NAME`.

It trains on what `Front.encode` gives, and is exported as a program of raw columns: the same front, as a layer.
"""

from __future__ import annotations

from typing import Any

import torch

from elasticdl.features.front import Front
from elasticdl.features.keras.front import FrontLayer
from elasticdl.keras.runtime import keras, tf
from elasticdl.model.metrics import Metric
from elasticdl.zoo.ctr import job, models


class Scored(keras.Model):
    """The model's score, and the chance of a click it stands for."""

    def __init__(self, model: Any, front: Front) -> None:
        super().__init__(name="scored")
        self.model = model
        self._front = front

    def call(self, features: dict[str, Any], training: bool = False) -> dict[str, Any]:
        score = self.model(features, training=training)
        return {"chance": tf.sigmoid(score), "score": score}

    def served(self) -> tuple[Any, dict[str, Any]]:
        """The same of raw columns, and their specs."""
        raw = OfRaw(self, self._front)
        return raw, raw.front.specs


class OfRaw(keras.Model):
    """Raw columns to scores. Numbers stay float64 until the front has rounded them."""

    def __init__(self, scored: Scored, front: Front) -> None:
        super().__init__(name="of_raw", autocast=False)
        self._convert_input_args = False
        self.front = FrontLayer(front, name="front")
        self.scored = scored

    def call(self, columns: dict[str, Any], training: bool = False) -> dict[str, Any]:
        found: dict[str, Any] = self.scored(self.front(columns), training=training)
        return found


class Job(job.Job):
    """As the one of torch; only what has tensors in it differs."""

    def forward(self, **params: Any) -> Any:
        return Scored(models.build(self.settings.model, self.layout, **{**self.settings.params, **params}), self.front)

    def loss(self, labels: dict[str, Any], predictions: dict[str, Any]) -> Any:
        """As that of torch: the mean over rows of each row's logloss times its weight."""
        each = tf.nn.weighted_cross_entropy_with_logits(
            labels["label"], predictions["score"], self.settings.positive_weight
        )
        return tf.reduce_mean(each * labels["weight"] if "weight" in labels else each)

    def optimizer(self, lr: float) -> Any:  # type: ignore[override]
        return keras.optimizers.Adam(lr)

    def metrics(self) -> dict[str, Metric]:
        return {name: _OfTorch(metric) for name, metric in super().metrics().items()}

    def of_array(self, array: Any) -> Any:
        return array


class _OfTorch:
    """A metric of torch, of tensors of TensorFlow."""

    def __init__(self, metric: Metric) -> None:
        self.reduction = metric.reduction
        self._metric = metric

    def update(self, labels: Any, predictions: Any) -> list[float]:
        return self._metric.update(
            *({name: torch.from_numpy(value.numpy()) for name, value in part.items()} for part in (labels, predictions))
        )
