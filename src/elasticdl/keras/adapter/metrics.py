"""Metrics of a Keras model file as parts that add up: functions and keras.metrics objects."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from elasticdl.errors import ModelError
from elasticdl.keras.runtime import keras, tf
from elasticdl.model import reduction


class FunctionMean:
    """A function (labels, predictions) that returns one number for a batch, or one for each record."""

    reduction = reduction.MEAN

    def __init__(self, name: str, function: Callable[[Any, Any], Any]) -> None:
        self.name = name
        self._function = function

    def update(self, labels: Any, predictions: Any) -> list[float]:
        value = self._function(labels, predictions)
        try:
            mean = float(tf.reduce_mean(tf.cast(value, tf.float64)))
        except (TypeError, ValueError, tf.errors.OpError) as exc:
            raise ModelError(f"metric {self.name}: expected numbers. Received: {value!r:.200}") from exc
        return [mean * count_records(labels)]


class KerasMetric:
    """A keras.metrics object. Its sums and counts add up over all records; others are averaged over batches."""

    def __init__(self, metric: Any) -> None:
        self._metric = metric
        self.reduction = reduction.MEAN
        if isinstance(metric, keras.metrics.RootMeanSquaredError):
            self.reduction = "root_mean"
        elif isinstance(metric, keras.metrics.Mean | keras.metrics.Precision | keras.metrics.Recall):
            self.reduction = "ratio"
        elif _is_roc(metric):
            self.reduction = "auc"

    def update(self, labels: Any, predictions: Any) -> list[float]:
        metric = self._metric
        if _is_roc(metric):
            return _count_scores(labels, predictions, metric.num_thresholds, from_logits=metric._from_logits)
        metric.reset_state()
        metric.update_state(labels, predictions)
        if isinstance(metric, keras.metrics.RootMeanSquaredError):
            return [float(metric.total) / max(float(metric.count), 1.0) * count_records(labels)]
        if isinstance(metric, keras.metrics.Mean):
            return [float(metric.total), float(metric.count)]
        if isinstance(metric, keras.metrics.Precision | keras.metrics.Recall):
            hits = _sum_variable(metric.true_positives)
            is_precision = isinstance(metric, keras.metrics.Precision)
            return [hits, hits + _sum_variable(metric.false_positives if is_precision else metric.false_negatives)]
        return [float(metric.result()) * count_records(labels)]


class OutputMetric:
    """A metric of one named output of a model with several outputs."""

    def __init__(self, output: str, metric: Any) -> None:
        self._output = output
        self._metric = metric
        self.reduction: str = metric.reduction

    def update(self, labels: Any, predictions: Any) -> list[float]:
        own_labels = labels[self._output] if isinstance(labels, dict) and self._output in labels else labels
        if not isinstance(predictions, dict) or self._output not in predictions:
            raise ModelError(f"eval_metrics_fn: the model has no output {self._output!r}")
        parts: list[float] = self._metric.update(own_labels, predictions[self._output])
        return parts


def flatten_metrics(metrics: Mapping[str, Any]) -> dict[str, Any]:
    """Turn {output: {name: metric}} into {output_name: metric of that output}; other entries stay."""
    flat: dict[str, Any] = {}
    for name, metric in metrics.items():
        if isinstance(metric, dict):
            flat |= {f"{name}_{inner}": (name, each) for inner, each in metric.items()}
        else:
            flat[name] = metric
    return flat


def count_records(labels: Any) -> int:
    """The number of records of a batch of labels."""
    first = tf.nest.flatten(labels)[0]
    if isinstance(first, tf.RaggedTensor):
        return int(first.nrows())
    return int(tf.shape(first)[0])


def _is_roc(metric: Any) -> bool:
    is_plain = isinstance(metric, keras.metrics.AUC) and not metric.multi_label
    return is_plain and "ROC" in str(metric.curve)


def _count_scores(labels: Any, predictions: Any, bins: int, *, from_logits: bool) -> list[float]:
    scores = np.asarray(predictions, np.float64).reshape(-1)
    scores = 1 / (1 + np.exp(-scores)) if from_logits else scores
    indices = np.clip((scores * bins).astype(np.int64), 0, bins - 1)
    positive = np.asarray(labels).reshape(-1) > 0.5
    counts = np.bincount(indices + bins * positive, minlength=2 * bins)
    return [float(count) for count in counts]


def _sum_variable(variable: Any) -> float:
    return float(np.sum(variable.numpy()))
