"""Metrics as parts that add up: workers measure their records, the master adds the parts, `reduction` finishes.

A plain function `(labels, predictions) -> scalar` is a mean over a batch; it is averaged by the number of records.
A `Metric` yields the parts itself and names the reduction that turns their sum into the value.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor

from elasticdl.errors import ModelError
from elasticdl.model import reduction, tensors


@runtime_checkable
class Metric(Protocol):
    """A metric of an evaluation. `reduction` is a name in `reduction.REDUCTIONS`."""

    @property
    def reduction(self) -> str: ...

    def update(self, labels: Any, predictions: Any) -> list[float]:
        """The additive parts of one batch."""


@dataclass(frozen=True)
class BatchMean:
    """A plain function whose value is a mean over the batch."""

    name: str
    function: Callable[[Any, Any], Any]
    reduction: str = reduction.MEAN

    def update(self, labels: Any, predictions: Any) -> list[float]:
        value = self.function(labels, predictions)
        if isinstance(value, Tensor) and value.numel() != 1:
            raise ModelError(
                f"metric {self.name}: expected one number for a batch. Received: a tensor of shape {list(value.shape)}"
            )
        return [float(value) * tensors.batch_size(labels)]


class Accuracy:
    """The share of correct records. The predicted class has the highest score, or a single score above `threshold`."""

    reduction = reduction.MEAN

    def __init__(self, threshold: float = 0.5) -> None:
        self.threshold = threshold

    def update(self, labels: Tensor, predictions: Tensor) -> list[float]:
        if predictions.ndim == labels.ndim + 1 and predictions.shape[-1] > 1:
            classes = predictions.argmax(-1)
        else:
            classes = (predictions.reshape(labels.shape) > self.threshold).to(labels.dtype)
        # A record with many labels (the tokens of a text) counts by its share of correct ones.
        return [float((classes == labels).double().reshape(len(labels), -1).mean(1).sum())]


class MeanLoss:
    """The mean over all records of a loss `(labels, predictions) -> mean of the batch`."""

    reduction = reduction.MEAN

    def __init__(self, loss: Callable[[Any, Any], Tensor]) -> None:
        self.loss = loss

    def update(self, labels: Any, predictions: Any) -> list[float]:
        return [float(self.loss(labels, predictions)) * tensors.batch_size(labels)]


class Perplexity:
    """exp of the mean negative log-likelihood of a token. Labels are token ids, predictions their scores."""

    reduction = "perplexity"

    def update(self, labels: Tensor, predictions: Tensor) -> list[float]:
        scores = predictions.reshape(-1, predictions.shape[-1])
        loss = torch.nn.functional.cross_entropy(scores, labels.reshape(-1), reduction="sum")
        return [float(loss), float(labels.numel())]


class AUC:
    """The area under the ROC curve, from histograms with `bins` bins; exact up to pairs in one bin."""

    reduction = "auc"

    def __init__(self, bins: int = 1000, *, from_logits: bool = False) -> None:
        if bins < 2:
            raise ValueError(f"bins: expected 2 or more. Received: {bins}")
        self.bins = bins
        self.from_logits = from_logits

    def update(self, labels: Tensor, predictions: Tensor) -> list[float]:
        scores = predictions.reshape(-1).double()
        scores = scores.sigmoid() if self.from_logits else scores
        low, high = (float(scores.min()), float(scores.max())) if scores.numel() else (0.0, 1.0)
        if not 0.0 <= low <= high <= 1.0:
            raise ModelError(
                f"AUC: expected scores between 0 and 1. Received: {low:.3g} … {high:.3g}; "
                "use AUC(from_logits=True) if predictions are logits"
            )
        bins = (scores * self.bins).long().clamp(max=self.bins - 1)
        positive = labels.reshape(-1) > 0.5
        counts = torch.bincount(bins + self.bins * positive.long(), minlength=2 * self.bins)
        return [float(count) for count in counts.tolist()]


class Precision:
    """The share of positive records among those predicted positive."""

    reduction = "ratio"

    def __init__(self, threshold: float = 0.5) -> None:
        self.threshold = threshold

    def update(self, labels: Tensor, predictions: Tensor) -> list[float]:
        true_positives, false_positives, _ = _count_confusion(labels, predictions, self.threshold)
        return [true_positives, true_positives + false_positives]


class Recall(Precision):
    """The share of records predicted positive among the positive ones."""

    def update(self, labels: Tensor, predictions: Tensor) -> list[float]:
        true_positives, _, false_negatives = _count_confusion(labels, predictions, self.threshold)
        return [true_positives, true_positives + false_negatives]


class F1(Precision):
    """The harmonic mean of precision and recall."""

    reduction = "f1"

    def update(self, labels: Tensor, predictions: Tensor) -> list[float]:
        return list(_count_confusion(labels, predictions, self.threshold))


def measure_parts(name: str, metric: Metric, labels: Any, predictions: Any) -> list[float]:
    """The parts of one batch as a list of floats. Raises ModelError if the metric returns anything else."""
    parts = metric.update(labels, predictions)
    if not isinstance(parts, list) or not parts or not all(isinstance(part, int | float) for part in parts):
        raise ModelError(f"metric {name}: expected update() to return a list of numbers. Received: {parts!r}")
    return [float(part) for part in parts]


def _count_confusion(labels: Tensor, predictions: Tensor, threshold: float) -> tuple[float, float, float]:
    is_positive = labels.reshape(-1) > 0.5
    is_predicted = predictions.reshape(-1) > threshold
    return (
        float((is_predicted & is_positive).sum()),
        float((is_predicted & ~is_positive).sum()),
        float((~is_predicted & is_positive).sum()),
    )


__all__ = [
    "AUC",
    "F1",
    "Accuracy",
    "BatchMean",
    "MeanLoss",
    "Metric",
    "Perplexity",
    "Precision",
    "Recall",
    "measure_parts",
]
