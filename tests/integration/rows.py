"""A model file that counts rows of a table: each time row `id` is trained, weight `id` grows by its share of a batch.

Gradients do not depend on values, so whatever the history, a row that is left out or trained twice shows.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from elasticdl.data.dataset import Dataset, Metadata
from elasticdl.model.mode import Mode

ROWS = 3000


class Net(nn.Module):
    def __init__(self, slow: str, pause_s: float) -> None:
        super().__init__()
        self.seen = nn.Embedding(ROWS, 1)
        nn.init.zeros_(self.seen.weight)
        self.dense = nn.Linear(1, 1)  # without weight: a model on ps must have one
        self._slow, self._pause_s = Path(slow or "/nowhere"), pause_s

    def forward(self, ids: Tensor) -> Tensor:
        if self._pause_s and self._slow.exists():
            time.sleep(self._pause_s)
        rows: Tensor = self.seen(ids)
        return (rows + 0.0 * self.dense(rows)).squeeze(1)


def forward(slow: str = "", pause_s: float = 0.02) -> nn.Module:
    return Net(slow, pause_s)


def loss(labels: Tensor, predictions: Tensor) -> Tensor:
    return -(predictions * labels).mean()


def optimizer(parameters: Iterable[Tensor], lr: float = 1.0) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=1.0)


def dataset_fn(dataset: Dataset, mode: Mode, metadata: Metadata) -> Dataset:
    def parse(batch: Any) -> tuple[Tensor, Tensor]:
        return torch.from_numpy(batch["id"].to_numpy().copy()), torch.from_numpy(batch["weight"].to_numpy().copy())

    return dataset.map_columns(parse, schema={"id": "int64", "weight": "float32"})
