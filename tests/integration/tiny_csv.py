"""A model file that reads a CSV file of numbers: with dropout, so that a record out of its place changes the bits."""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from elasticdl.data.dataset import Dataset, Metadata
from elasticdl.model.metrics import Accuracy, Metric
from elasticdl.model.mode import Mode

COLUMNS = ("a", "b", "c", "d")


class Net(nn.Module):
    def __init__(self, slow: str, pause_s: float) -> None:
        super().__init__()
        self.first, self.drop, self.second = nn.Linear(len(COLUMNS), 8), nn.Dropout(0.2), nn.Linear(8, 2)
        self._slow, self._pause_s = Path(slow or "/nowhere"), pause_s

    def forward(self, features: Tensor) -> Tensor:
        if self._pause_s and self._slow.exists():
            time.sleep(self._pause_s)
        result: Tensor = self.second(self.drop(torch.relu(self.first(features))))
        return result


def forward(slow: str = "", pause_s: float = 0.02) -> nn.Module:
    return Net(slow, pause_s)


def loss(labels: Tensor, predictions: Tensor) -> Tensor:
    return nn.functional.cross_entropy(predictions, labels)


def optimizer(parameters: Iterable[Tensor], lr: float = 0.01) -> torch.optim.Optimizer:
    return torch.optim.AdamW(parameters, lr=lr)


def dataset_fn(dataset: Dataset, mode: Mode, metadata: Metadata) -> Dataset:
    def parse(record: dict[str, str]) -> Any:
        features = torch.tensor([float(record[name]) for name in COLUMNS])
        return features if mode is Mode.PREDICTION else (features, torch.tensor(int(record["label"])))

    return dataset.map(parse)


def eval_metrics_fn() -> dict[str, Metric]:
    return {"accuracy": Accuracy()}
