"""The loss of clicks, with weights of classes and of rows."""

from __future__ import annotations

from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits

from elasticdl.errors import ModelError


def logloss(labels: Tensor | dict[str, Tensor], predictions: Tensor, positive_weight: float = 1.0) -> Tensor:
    """The mean over rows of each row's loss times its weight.

    Args:
        labels: 0 or 1, [rows]; or {"label": those, "weight": one number a row}.
        predictions: before the sigmoid, [rows].
        positive_weight: how many times a row with a click counts. Predictions are then odds of that many clicks.

    Weights are not scaled to a mean of 1: so a batch has the same gradient however many workers share it.
    """
    if not positive_weight > 0:
        raise ModelError(f"logloss: expected positive_weight above 0. Received: {positive_weight}")
    found = labels["label"] if isinstance(labels, dict) else labels
    weights = labels["weight"].to(predictions.dtype) if isinstance(labels, dict) and "weight" in labels else None
    if found.shape != predictions.shape:
        raise ModelError(f"logloss: expected labels {list(predictions.shape)}. Received: {list(found.shape)}")
    factor = predictions.new_tensor(positive_weight) if positive_weight != 1.0 else None
    return binary_cross_entropy_with_logits(predictions, found.to(predictions.dtype), weight=weights, pos_weight=factor)
