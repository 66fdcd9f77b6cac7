"""Click-through-rate models: DeepFM (Guo et al., 2017) and Wide & Deep (Cheng et al., 2016). Their tables live on ps.

python -m elasticdl.zoo.ctr.clicks data
elasticdl train --model_zoo=src/elasticdl/zoo --model_def=ctr.ctr.deepfm --num_ps_pods=1 --num_workers=2 \
    --training_data=data/train.clicks --validation_data=data/test.clicks

Data is a file of made-up clicks as above, or one of Criteo's challenge (train.txt, also as .xz).
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits

from elasticdl.data.dataset import Dataset, Metadata
from elasticdl.model.metrics import AUC, Metric
from elasticdl.model.mode import Mode
from elasticdl.torch import Embedding, Initializer
from elasticdl.zoo.ctr.clicks import FIELDS, NUMBERS, RECORD, Clicks, read_criteo


class DeepFM(nn.Module):
    """The score is the sum of first-order weights, products of factors in pairs, and a deep net over all factors."""

    def __init__(self, columns: int, hidden: tuple[int, ...]) -> None:
        super().__init__()
        self.weights = Embedding(1, name="weights", initializer="zeros")
        self.factors = Embedding(columns, name="factors", initializer=Initializer(kind="normal", deviation=0.01))
        self.numbers = nn.Linear(NUMBERS, 1)
        self.deep = mlp(FIELDS * columns + NUMBERS, hidden)

    def forward(self, features: dict[str, Tensor]) -> Tensor:
        ids, numbers = features["ids"], features["numbers"]
        factors = self.factors(ids)
        first = self.weights(ids).sum(dim=(1, 2)) + self.numbers(numbers).squeeze(1)
        second = 0.5 * (factors.sum(dim=1).square() - factors.square().sum(dim=1)).sum(dim=1)
        deep: Tensor = self.deep(torch.cat([factors.flatten(1), numbers], dim=1)).squeeze(1)
        score: Tensor = first + second + deep
        return score


class WideAndDeep(nn.Module):
    """A linear model over ids beside a deep net over their embeddings."""

    def __init__(self, columns: int, hidden: tuple[int, ...]) -> None:
        super().__init__()
        self.wide = Embedding(1, name="wide", initializer="zeros")
        self.embedding = Embedding(columns, name="embedding", initializer=Initializer(kind="normal", deviation=0.01))
        self.deep = mlp(FIELDS * columns + NUMBERS, hidden)

    def forward(self, features: dict[str, Tensor]) -> Tensor:
        ids, numbers = features["ids"], features["numbers"]
        deep: Tensor = self.deep(torch.cat([self.embedding(ids).flatten(1), numbers], dim=1)).squeeze(1)
        score: Tensor = self.wide(ids).sum(dim=(1, 2)) + deep
        return score


def mlp(inputs: int, hidden: tuple[int, ...]) -> nn.Module:
    layers: list[nn.Module] = []
    for size in hidden:
        layers += [nn.Linear(inputs, size), nn.ReLU()]
        inputs = size
    return nn.Sequential(*layers, nn.Linear(inputs, 1))


def deepfm(columns: int = 16, hidden: tuple[int, ...] = (256, 128)) -> nn.Module:
    return DeepFM(columns, tuple(hidden))


def wide_and_deep(columns: int = 8, hidden: tuple[int, ...] = (64, 32)) -> nn.Module:
    return WideAndDeep(columns, tuple(hidden))


def loss(labels: Tensor, predictions: Tensor) -> Tensor:
    return binary_cross_entropy_with_logits(predictions, labels)


def optimizer(parameters: Iterable[Tensor], lr: float = 0.02) -> torch.optim.Optimizer:
    return torch.optim.Adagrad(parameters, lr=lr)


def custom_data_reader(data_path: str) -> Any:
    path = Path(data_path)
    if path.suffix == ".clicks":
        return Clicks(path)
    return [record.tobytes() for record in read_criteo(path)]


def dataset_fn(dataset: Dataset, mode: Mode, metadata: Metadata) -> Dataset:
    def parsed(items: list[bytes]) -> Any:
        found = np.frombuffer(b"".join(items), RECORD)
        features = {name: torch.from_numpy(np.ascontiguousarray(found[name])) for name in ("ids", "numbers")}
        return (
            features if mode is Mode.PREDICTION else (features, torch.from_numpy(np.ascontiguousarray(found["label"])))
        )

    return dataset.map_batches(parsed)


def eval_metrics_fn() -> dict[str, Metric]:
    return {"auc": AUC(from_logits=True)}
