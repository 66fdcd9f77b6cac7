"""A model file whose rows count: each time an id is trained, its row grows by one batch's share.

The gradient of a row does not depend on any value, so the order of updates does not matter, and one that is lost or
counted twice shows. `moved` is a plain layer, `own` one of ours with ids that are anywhere.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path

import torch
from torch import Tensor, nn

import elasticdl.torch as elastic
from elasticdl.data.dataset import Dataset, Metadata
from elasticdl.model.mode import Mode

WORDS, RECORDS, FAR = 30, 200, -1_000_000_007


class Net(nn.Module):
    def __init__(self, slow: str, pause_s: float) -> None:
        super().__init__()
        self.moved = nn.Embedding(WORDS, 2)
        nn.init.zeros_(self.moved.weight)
        self.own = elastic.Embedding(3, initializer="zeros")
        self.dense = nn.Linear(1, 1)
        self._slow, self._pause_s = Path(slow or "/nowhere"), pause_s

    def forward(self, ids: Tensor) -> Tensor:
        if self._pause_s and self._slow.exists():
            time.sleep(self._pause_s)
        rows = self.moved(ids[:, 0]).sum(1) + self.own(ids[:, 1]).sum(1)
        return rows + 0.0 * self.dense(rows.unsqueeze(1)).squeeze(1)


def forward(slow: str = "", pause_s: float = 0.02) -> nn.Module:
    return Net(slow, pause_s)


def loss(labels: Tensor, predictions: Tensor) -> Tensor:
    return -predictions.mean()


def optimizer(parameters: Iterable[Tensor], lr: float = 1.0) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=lr)


class Numbers:
    """Record i has the word i % WORDS, and the same far away."""

    def __len__(self) -> int:
        return RECORDS

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        return torch.tensor([index % WORDS, FAR * (index % WORDS)]), torch.tensor(0.0)


def custom_data_reader(data_path: str) -> Numbers:
    return Numbers()


def dataset_fn(dataset: Dataset, mode: Mode, metadata: Metadata) -> Dataset:
    return dataset.map(lambda record: record[0]) if mode is Mode.PREDICTION else dataset
