"""A small `Training` that tests drive by hand, with synthetic gradients in place of reduced ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import nn

from elasticdl.collective.gradients import GradientBuffers
from elasticdl.collective.tree import ReductionTree
from elasticdl.model.callbacks import Callback
from elasticdl.spec import LrScaling
from elasticdl.worker.training.adaptive_batch import AdaptiveBatch, Update
from elasticdl.worker.training.state import TrainingState
from elasticdl.worker.training.user_state import UserState

MakeState = Callable[[nn.Module, torch.optim.Optimizer], UserState]
TAIL = 4


def new_training(
    make_state: MakeState | None = None, *, optimizer_count: int = 1, callbacks: Sequence[Callback] = ()
) -> TrainingState:
    torch.manual_seed(4)
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
    if optimizer_count == 1:
        optimizers: list[torch.optim.Optimizer] = [torch.optim.AdamW(model.parameters(), lr=0.1, weight_decay=0.1)]
    else:
        optimizers = [
            torch.optim.AdamW(model[0].parameters(), lr=0.1),
            torch.optim.SGD(model[2].parameters(), lr=0.1, momentum=0.9),
        ]
    gradients = GradientBuffers(model.parameters(), ReductionTree(1), TAIL, ordered=True)
    state = make_state(model, optimizers[0]) if make_state is not None else None
    return TrainingState(
        model, optimizers, gradients, callbacks, lambda step: None, AdaptiveBatch(LrScaling.NONE, 8), state, seed=6
    ).register_hooks()


def reduced_gradient(training: TrainingState, *key: int) -> torch.Tensor:
    """Returns a gradient generated from `key`, in a buffer as after an exchange."""
    buffer = training.gradients.acquire()
    flat = training.gradients.flat(buffer)
    generator = torch.Generator().manual_seed(hash(key) % (1 << 31))
    flat.copy_(torch.randn(len(flat), generator=generator))
    return buffer


def train_steps(training: TrainingState, steps: int) -> None:
    """Makes this many updates that are applied by the job."""
    if not training.has_state:
        training.begin()
    for _ in range(steps):
        training.open_update(reduced_gradient(training, training.step), Update(8), {})
        training.close_update()
