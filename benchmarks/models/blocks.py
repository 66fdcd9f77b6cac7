"""A model with everything that makes reproducibility hard: convolutions, BatchNorm and dropout, on synthetic images."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

RECORDS = 2000


class SyntheticImages(torch.utils.data.Dataset[tuple[Tensor, Tensor]]):
    def __init__(self, records: int = RECORDS) -> None:
        generator = torch.Generator().manual_seed(11)
        self.features = torch.randn(records, 1, 12, 12, generator=generator)
        self.labels = torch.randint(10, (records,), generator=generator)

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        return self.features[index], self.labels[index]


def forward() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, stride=2, padding=1),
        nn.BatchNorm2d(32),
        nn.ReLU(),
        nn.Flatten(),
        nn.Dropout(0.25),
        nn.Linear(32 * 36, 256),
        nn.ReLU(),
        nn.Linear(256, 10),
    )


def loss(labels: Tensor, predictions: Tensor) -> Tensor:
    return nn.functional.cross_entropy(predictions, labels)


def optimizer(parameters: Any, lr: float = 1e-3) -> torch.optim.Optimizer:
    return torch.optim.AdamW(parameters, lr=lr)


def dataset_fn(dataset: Any, mode: Any, metadata: Any) -> Any:
    return dataset


def custom_data_reader(data_path: str) -> SyntheticImages:
    return SyntheticImages()
