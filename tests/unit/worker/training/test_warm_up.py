"""Warm-up passes over every size that a batch may have, which leave no trace."""

from __future__ import annotations

import torch
from torch import nn

from elasticdl.data.dataset import Batch
from elasticdl.data.plan import TrainingPlan
from elasticdl.worker.training.warm_up import find_batch_sizes, warm_up_model


def plan(records: int, logical_ranks: int, **options: int) -> TrainingPlan:
    return TrainingPlan(records, 10, logical_ranks, **options)  # type: ignore[arg-type]


def test_every_size_of_a_slice_is_warmed_once() -> None:
    for records in (10, 29, 33, 40):
        for ranks in (1, 3, 4, 10):
            training_plan = plan(records, ranks, epochs=2)
            steps = range(training_plan.total_steps)
            sizes = {len(training_plan.rank_slice(step, rank)) for step in steps for rank in range(ranks)} - {0}

            places = find_batch_sizes(training_plan)

            assert set(places) == sizes
            assert all(len(training_plan.rank_slice(*step_and_rank)) == size for size, step_and_rank in places.items())


def test_steps_that_are_never_trained_are_not_warmed() -> None:
    assert set(find_batch_sizes(plan(33, 2, max_steps=2))) == {5}


def test_a_warm_up_leaves_no_trace_in_the_state() -> None:
    torch.manual_seed(3)
    model = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3), nn.Dropout(0.5))
    before = {name: value.clone() for name, value in model.state_dict().items()}
    seen: list[int] = []
    state = torch.get_rng_state()

    def sample(step: int, rank: int) -> Batch | None:
        size = len(plan(33, 4).rank_slice(step, rank))
        return Batch(torch.randn(size, 2), None, size) if size > 1 else None  # all was filtered

    def losses(batch: Batch) -> list[torch.Tensor]:
        seen.append(batch.size)
        return [model(batch.features).sum()]

    warm_up_model(model, plan(33, 4), sample, losses)

    assert seen == [3, 2]
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all(parameter.grad is None for parameter in model.parameters())
