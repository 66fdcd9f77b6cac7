"""A convolutional net that reads digits of 8 x 8 pixels.

elasticdl train --model_zoo=src/elasticdl/zoo --model_def=digits.digits.forward \
    --training_data=data/train.csv --validation_data=data/test.csv

The data is synthetic, without a download: python -m elasticdl.zoo.digits.data data
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from elasticdl.data.dataset import Dataset, Metadata
from elasticdl.model.metrics import Accuracy, Metric
from elasticdl.model.mode import Mode

PIXELS = [f"pixel_{i}" for i in range(64)]


def forward(channels: int = 16, dropout: float = 0.1) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, channels, kernel_size=3, padding=1),
        nn.ReLU(),
        nn.Conv2d(channels, 2 * channels, kernel_size=3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Dropout(dropout),
        nn.Linear(2 * channels * 16, 10),
    )


def loss(labels: Tensor, predictions: Tensor) -> Tensor:
    return cross_entropy(predictions, labels)


def optimizer(parameters: Iterable[Tensor], lr: float = 0.002) -> torch.optim.Optimizer:
    return torch.optim.AdamW(parameters, lr=lr)


def dataset_fn(dataset: Dataset, mode: Mode, metadata: Metadata) -> Dataset:
    def example(record: dict[str, str]) -> Any:
        image = np.array([record[pixel] for pixel in PIXELS], dtype=np.float32).reshape(1, 8, 8) / 16
        return image if mode is Mode.PREDICTION else (image, int(record["label"]))

    return dataset.map(example)


def eval_metrics_fn() -> dict[str, Metric]:
    return {"accuracy": Accuracy()}
