"""Your model. ElasticDL calls four functions of this file; the names of their arguments are the contract.

Train it with as many workers as you like, add some or kill some meanwhile: the result is the same, bit for bit.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from elasticdl.model.metrics import Accuracy
from elasticdl.model.mode import Mode


def forward(hidden: int = 32) -> nn.Module:
    """The model. Arguments come from `model: params:` in job.yaml, or from --model_params="hidden=64"."""
    return nn.Sequential(nn.Linear(2, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, 2))


def loss(labels: Tensor, predictions: Tensor) -> Tensor:
    """One number for a batch: its mean loss. The labels come first."""
    return nn.functional.cross_entropy(predictions, labels)


def optimizer(parameters: Any, lr: float = 0.01) -> torch.optim.Optimizer:
    """Any optimizer of torch. `lr` comes from --learning_rate, when that is given."""
    return torch.optim.AdamW(parameters, lr=lr)


def dataset_fn(dataset: Any, mode: Mode, metadata: Any) -> Any:
    """Records become (features, labels). A record of a CSV file is a dict from column to text.

    `dataset` also has filter, map_batches and shuffle; it is read in batches, so do not batch here.
    """

    def example(record: dict[str, str]) -> Any:
        features = [float(record["x"]), float(record["y"])]
        if mode is Mode.PREDICTION:  # there are no labels
            return features
        return features, int(record["label"])

    return dataset.map(example)


# What follows may be left out.


def eval_metrics_fn() -> dict[str, Any]:
    """What to measure on the validation data, by name: a Metric, or a function of (labels, predictions)."""
    return {"accuracy": Accuracy()}


# def callbacks():
#     """Called at fixed moments of the training."""
#     return [EarlyStopping("accuracy", patience=3)]    # from elasticdl.model.callbacks
#
# def learning_rate(step):
#     """The rate of each step, instead of the optimizer's own."""
#     return 0.01 / (1 + step / 100)
