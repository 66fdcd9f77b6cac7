"""The functions of a model file for `model: keras/NAME`. Its model is exported with raw columns as inputs."""

from __future__ import annotations

from typing import Any

import torch

from elasticdl.ctr.models import catalog, job
from elasticdl.features.preprocessing.preprocessor import Preprocessor
from elasticdl.keras.features.preprocessor import PreprocessorLayer
from elasticdl.keras.runtime import keras, tf
from elasticdl.keras.served_model import ServedModel
from elasticdl.model.metrics import Metric


class ScoredModel(ServedModel):
    """Returns the model's score, and the probability of label 1 that the score stands for."""

    def __init__(self, model: Any, preprocessor: Preprocessor) -> None:
        super().__init__(name="scored")
        self.model = model
        self._preprocessor = preprocessor

    def call(self, features: dict[str, Any], training: bool = False) -> dict[str, Any]:
        score = self.model(features, training=training)
        return {"probability": tf.sigmoid(score), "score": score}

    def served(self) -> tuple[Any, dict[str, Any]]:
        """Returns the model that takes raw columns, and the specs of its inputs."""
        raw = RawColumnsModel(self, self._preprocessor)
        return raw, raw.preprocessor.input_specs


class RawColumnsModel(keras.Model):
    """Computes scores from raw columns. Numbers stay float64 until the preprocessor rounds them."""

    def __init__(self, scored: ScoredModel, preprocessor: Preprocessor) -> None:
        super().__init__(name="raw_columns", autocast=False)
        self._convert_input_args = False
        self.preprocessor = PreprocessorLayer(preprocessor, name="preprocessor")
        self.scored = scored

    def call(self, columns: dict[str, Any], training: bool = False) -> dict[str, Any]:
        predictions: dict[str, Any] = self.scored(self.preprocessor(columns), training=training)
        return predictions


class CtrJob(job.CtrJob):
    """The same as for torch, except for functions of tensors."""

    def forward(self, **params: Any) -> Any:
        return ScoredModel(
            catalog.build_model(self.settings.model, self.layout, **{**self.settings.params, **params}),
            self.preprocessor,
        )

    def loss(self, labels: dict[str, Any], predictions: dict[str, Any]) -> Any:
        """Returns the mean over rows of each row's logloss times its weight, as for torch."""
        losses = tf.nn.weighted_cross_entropy_with_logits(
            labels["label"], predictions["score"], self.settings.positive_weight
        )
        return tf.reduce_mean(losses * labels["weight"] if "weight" in labels else losses)

    def optimizer(self, lr: float) -> Any:  # type: ignore[override]
        return keras.optimizers.Adam(lr)

    def metrics(self) -> dict[str, Metric]:
        return {name: _TorchMetricAdapter(metric) for name, metric in super().metrics().items()}

    def to_tensor(self, array: Any) -> Any:
        return array


class _TorchMetricAdapter:
    """Feeds a metric for torch with tensors of TensorFlow."""

    def __init__(self, metric: Metric) -> None:
        self.reduction = metric.reduction
        self._metric = metric

    def update(self, labels: Any, predictions: Any) -> list[float]:
        return self._metric.update(
            *({name: torch.from_numpy(value.numpy()) for name, value in part.items()} for part in (labels, predictions))
        )
