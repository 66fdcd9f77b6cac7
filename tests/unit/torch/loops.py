"""Two ways to train the same model: a loop over `join`, and a loop in plain PyTorch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import nn
from torch.utils.data import TensorDataset

import elasticdl.torch as elastic
from elasticdl.data.plan import TrainingPlan

RECORDS, BATCH, EPOCHS, SEED = 40, 8, 3, 5
STEPS = EPOCHS * RECORDS // BATCH


def digits(dtype: torch.dtype = torch.float32) -> TensorDataset:
    """Small made-up data: six numbers, two classes."""
    generator = torch.Generator().manual_seed(1)
    features = torch.randn(RECORDS, 6, generator=generator, dtype=torch.float64)
    return TensorDataset(features.to(dtype), (features.sum(1) > 0).long())


def small_model(seed: int = 2) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 2))


def join(
    model: Any, optimizer: Any, *, logical_ranks: int = 1, dataset: Any = None, epochs: int = EPOCHS, **keywords: Any
) -> elastic.JoinedJob:
    return elastic.join(
        model, optimizer, dataset or digits(), global_batch_size=BATCH, epochs=epochs, seed=SEED,
        logical_ranks=logical_ranks, **keywords,
    )  # fmt: skip


def plain_batches(dataset: TensorDataset | None = None) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """The batches of `join`, as a loop in plain PyTorch would read them."""
    features, labels = (dataset or digits()).tensors
    plan = TrainingPlan(
        records=RECORDS, global_batch=BATCH, logical_ranks=1, epochs=EPOCHS, seed=SEED, shuffle=True, drop_last=False
    )
    for step in range(plan.total_steps):
        indices = torch.as_tensor(list(plan.rank_slice(step, 0)))
        yield features[indices], labels[indices]


def cross_entropy(
    model: Callable[[torch.Tensor], torch.Tensor], features: torch.Tensor, labels: torch.Tensor
) -> torch.Tensor:
    return nn.functional.cross_entropy(model(features), labels)


def is_same(model: nn.Module, other: nn.Module) -> bool:
    """Whether two models have the same bits."""
    pairs = zip(model.state_dict().values(), other.state_dict().values(), strict=True)
    return all(torch.equal(first, second) for first, second in pairs)


def rates(optimizer: torch.optim.Optimizer) -> Sequence[float]:
    return [float(group["lr"]) for group in optimizer.param_groups]
