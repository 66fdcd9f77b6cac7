"""A small net whose batches take `pause_s` each, most of it asleep: workers do not compete for cores.

elasticdl train --model_zoo=src/elasticdl/zoo --model_def=paced.paced.forward --training_data=made-up \
    --data_format=python --model_params="pause_s=0.05"
"""

from __future__ import annotations

import time
from collections.abc import Iterable

import torch
from torch import Tensor, nn

from elasticdl.data.dataset import Dataset, Metadata
from elasticdl.model.mode import Mode

FEATURES = 8


class PacedModel(nn.Module):
    def __init__(self, pause_s: float) -> None:
        super().__init__()
        self._layer = nn.Linear(FEATURES, 1)
        self._pause_s = pause_s

    def forward(self, features: Tensor) -> Tensor:
        time.sleep(self._pause_s)
        predicted: Tensor = self._layer(features).squeeze(-1)
        return predicted


def forward(pause_s: float = 0.02) -> nn.Module:
    return PacedModel(pause_s)


def loss(labels: Tensor, predictions: Tensor) -> Tensor:
    return nn.functional.mse_loss(predictions, labels)


def optimizer(parameters: Iterable[Tensor], lr: float = 0.05) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=lr)


class RandomSums:
    """Random features, and their sum as the label."""

    def __init__(self, records: int) -> None:
        self._features = torch.rand(records, FEATURES, generator=torch.Generator().manual_seed(1))

    def __len__(self) -> int:
        return len(self._features)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        return self._features[index], self._features[index].sum()


def custom_data_reader(data_path: str, records: int = 400) -> RandomSums:
    return RandomSums(records)


def dataset_fn(dataset: Dataset, mode: Mode, metadata: Metadata) -> Dataset:
    return dataset
