"""Passes before a worker is ready, whose results are dropped: compilers and tuners run there."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch
from torch import nn

from elasticdl.data.dataset import Batch
from elasticdl.data.plan import TrainingPlan
from elasticdl.worker.reading.loader_process import preserve_random_state
from elasticdl.worker.training.buffers import ModelBuffers


def warm_up_model(
    model: nn.Module,
    plan: TrainingPlan,
    sample: Callable[[int, int], Batch | None],
    losses: Callable[[Batch], Iterable[torch.Tensor]],
) -> None:
    """Do forward and backward passes over a batch of each possible size, so that the first step is not slow.

    `sample(step, logical_rank)` reads a batch; `losses` yields the losses that the training loop would call backward
    with. Afterwards random numbers, buffers and gradients are as before.
    """
    buffers = ModelBuffers(model)
    before = buffers.capture()
    device = next(model.parameters()).device
    with preserve_random_state(), torch.random.fork_rng([device] if device.type == "cuda" else []):
        for step, rank in find_batch_sizes(plan).values():
            batch = sample(step, rank)
            for loss in losses(batch) if batch is not None else ():
                loss.backward()  # type: ignore[no-untyped-call]
    model.zero_grad(set_to_none=True)
    buffers.restore(before)


def find_batch_sizes(plan: TrainingPlan) -> dict[int, tuple[int, int]]:
    """All sizes that the batch of a logical rank may have, each with a step and a rank that have it."""
    last = min(plan.steps_per_epoch, plan.total_steps) - 1
    slices = [(step, rank) for step in (0, last) for rank in range(plan.logical_ranks)]
    sizes: dict[int, tuple[int, int]] = {}
    for step, rank in slices:
        sizes.setdefault(len(plan.rank_slice(step, rank)), (step, rank))
    sizes.pop(0, None)
    return sizes
