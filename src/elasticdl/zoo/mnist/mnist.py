"""LeNet-5 (LeCun et al., Gradient-Based Learning Applied to Document Recognition, 1998) with ReLU and max pooling.

elasticdl train --model_zoo=src/elasticdl/zoo --model_def=mnist.mnist.forward --data_format=python \
    --training_data=train-images-idx3-ubyte --validation_data=t10k-images-idx3-ubyte
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
from elasticdl.zoo.mnist.idx import IdxImages


def forward(dropout: float = 0.25) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 6, kernel_size=5, padding=2),  # C1
        nn.ReLU(),
        nn.MaxPool2d(2),  # S2
        nn.Conv2d(6, 16, kernel_size=5),  # C3
        nn.ReLU(),
        nn.MaxPool2d(2),  # S4
        nn.Flatten(),
        nn.Linear(16 * 5 * 5, 120),  # C5
        nn.ReLU(),
        nn.Dropout(dropout),
        nn.Linear(120, 84),  # F6
        nn.ReLU(),
        nn.Linear(84, 10),
    )


def loss(labels: Tensor, predictions: Tensor) -> Tensor:
    return cross_entropy(predictions, labels)


def optimizer(parameters: Iterable[Tensor], lr: float = 0.05, momentum: float = 0.9) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=lr, momentum=momentum)


def custom_data_reader(data_path: str) -> IdxImages:
    return IdxImages.open(data_path)


def dataset_fn(dataset: Dataset, mode: Mode, metadata: Metadata) -> Dataset:
    def batch(items: list[tuple[np.ndarray[Any, Any], int]]) -> Any:
        images = np.stack([image for image, _ in items])[:, None].astype(np.float32) / 255
        return images if mode is Mode.PREDICTION else (images, np.array([label for _, label in items]))

    return dataset.map_batches(batch)


def eval_metrics_fn() -> dict[str, Metric]:
    return {"accuracy": Accuracy()}
