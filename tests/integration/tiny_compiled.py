"""A model file that returns a compiled model, and forbids compilation after training has started."""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path
from typing import cast

import torch
from torch import Tensor, nn

from elasticdl.data.dataset import Dataset, Metadata
from elasticdl.model.callbacks import Callback
from elasticdl.model.mode import Mode

FEATURES, CLASSES, RECORDS = 6, 2, 205

PAUSES: list[tuple[Path, float]] = []  # of each loss, while the file exists


def forward(slow: str = "", pause_s: float = 0.02) -> nn.Module:
    PAUSES[:] = [(Path(slow or "/nowhere"), pause_s)]
    layers = [nn.Linear(FEATURES, 16), nn.LayerNorm(16), nn.Tanh(), nn.Dropout(0.2), nn.Linear(16, CLASSES)]
    return cast(nn.Module, torch.compile(nn.Sequential(*layers), backend="aot_eager"))


def loss(labels: Tensor, predictions: Tensor) -> Tensor:
    for slow, pause_s in PAUSES:
        if slow.exists():
            time.sleep(pause_s)
    return nn.functional.cross_entropy(predictions, labels)


def optimizer(parameters: Iterable[Tensor], lr: float = 0.01) -> torch.optim.Optimizer:
    return torch.optim.AdamW(parameters, lr=lr)


def custom_data_reader(data_path: str) -> list[tuple[Tensor, Tensor]]:
    generator = torch.Generator().manual_seed(7)
    features = torch.randn(RECORDS, FEATURES, generator=generator)
    return list(zip(features, (features.sum(1) > 0).long(), strict=True))


def dataset_fn(dataset: Dataset, mode: Mode, metadata: Metadata) -> Dataset:
    return dataset


class _NoCompiling(Callback):
    """Fails the worker if something is compiled after the warm-up."""

    def on_train_begin(self, model: nn.Module) -> None:
        torch.compiler.set_stance("fail_on_recompile")

    def on_train_end(self, model: nn.Module) -> None:
        torch.compiler.set_stance("default")


def callbacks() -> list[Callback]:
    return [_NoCompiling()]
