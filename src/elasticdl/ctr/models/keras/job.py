"""The functions of a model file made from a ctr.yaml with `model: keras/NAME`. Exported as a program of raw columns."""

from __future__ import annotations

from typing import Any

import torch

from elasticdl.ctr.models import catalog, job
from elasticdl.features.preprocessing.preprocessor import Preprocessor
from elasticdl.keras.features.preprocessor import PreprocessorLayer
from elasticdl.keras.runtime import keras, tf
from elasticdl.model.metrics import Metric


class ScoredModel(keras.Model):
    """The model's score, and the chance of a click it stands for."""

    def __init__(self, model: Any, front: Preprocessor) -> None:
        super().__init__(name="scored")
        self.model = model
        self._front = front

    def call(self, features: dict[str, Any], training: bool = False) -> dict[str, Any]:
        score = self.model(features, training=training)
        return {"probability": tf.sigmoid(score), "score": score}

    def served(self) -> tuple[Any, dict[str, Any]]:
        """The same of raw columns, and their specs."""
        raw = RawColumnsModel(self, self._front)
        return raw, raw.front.input_specs


class RawColumnsModel(keras.Model):
    """Raw columns to scores. Numbers stay float64 until the front has rounded them."""

    def __init__(self, scored: ScoredModel, preprocessor: Preprocessor) -> None:
        super().__init__(name="of_raw", autocast=False)
        self._convert_input_args = False
        self.front = PreprocessorLayer(preprocessor, name="front")
        self.scored = scored

    def call(self, columns: dict[str, Any], training: bool = False) -> dict[str, Any]:
        found: dict[str, Any] = self.scored(self.front(columns), training=training)
        return found


class CtrJob(job.CtrJob):
    """As the one of torch; only what has tensors in it differs."""

    def forward(self, **params: Any) -> Any:
        return ScoredModel(
            catalog.build_model(self.settings.model, self.layout, **{**self.settings.params, **params}),
            self.preprocessor,
        )

    def loss(self, labels: dict[str, Any], predictions: dict[str, Any]) -> Any:
        """As that of torch: the mean over rows of each row's logloss times its weight."""
        each = tf.nn.weighted_cross_entropy_with_logits(
            labels["label"], predictions["score"], self.settings.positive_weight
        )
        return tf.reduce_mean(each * labels["weight"] if "weight" in labels else each)

    def optimizer(self, lr: float) -> Any:  # type: ignore[override]
        return keras.optimizers.Adam(lr)

    def metrics(self) -> dict[str, Metric]:
        return {name: _TorchMetricAdapter(metric) for name, metric in super().metrics().items()}

    def to_tensor(self, array: Any) -> Any:
        return array


class _TorchMetricAdapter:
    """A metric of torch, of tensors of TensorFlow."""

    def __init__(self, metric: Metric) -> None:
        self.reduction = metric.reduction
        self._metric = metric

    def update(self, labels: Any, predictions: Any) -> list[float]:
        return self._metric.update(
            *({name: torch.from_numpy(value.numpy()) for name, value in part.items()} for part in (labels, predictions))
        )
