"""A callback may reduce the learning rate: that of dense layers and of rows, from the next update on."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from elasticdl.collective.gradients import GradientBuffers
from elasticdl.collective.tree import ReductionTree
from elasticdl.model.callbacks import Callback
from elasticdl.spec import LrScaling
from elasticdl.torch import Embedding, join
from elasticdl.worker.rounds.step_report import StepReportLayout
from elasticdl.worker.training.adaptive_batch import AdaptiveBatch, Update
from elasticdl.worker.training.state import TrainingState


class Halve(Callback):
    """After step 1."""

    def on_step_end(self, step: int, loss: float) -> None:
        if step == 1:
            self.rate_factor = 0.5


class Rows(nn.Module):
    """Its loss has the gradient 1 for the one row and the one weight."""

    def __init__(self) -> None:
        super().__init__()
        self.row = Embedding(1, initializer="zeros")
        self.weight = nn.Parameter(torch.zeros(()))

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        scores: torch.Tensor = self.row(ids).mean() + self.weight
        return scores


def test_dense_layers_and_rows_learn_with_the_reduced_rate() -> None:
    model = Rows()
    job = join(
        model, torch.optim.SGD(model.parameters(), lr=1.0), [(3, 0)] * 5, global_batch_size=1, callbacks=[Halve()]
    )
    seen = []

    for step in job:
        for ids, _ in step:
            loss = model(ids)
            seen.append((float(model.weight.detach()), float(loss.detach() - model.weight.detach())))
            step.backward(loss)

    # Known after the second update, in the third agreed upon, and so applied by the fourth.
    assert seen == [(weight, weight) for weight in (0.0, -1.0, -2.0, -3.0, -3.5)]


def test_a_worker_that_loads_a_state_continues_with_the_reduced_rate() -> None:
    first, second = training(), training()
    first.begin()
    update(first, Update(1, rate_factor=0.25))

    second.load(first.capture())
    update(second, Update(1))

    assert first.learning_rate == first.next_rate == 0.25
    assert second.model.get_parameter("weight").item() == pytest.approx(-1.25)
    assert second.learning_rate == 1.0


def training() -> TrainingState:
    model = nn.Linear(1, 1, bias=False)
    nn.init.zeros_(model.weight)
    gradients = GradientBuffers(model.parameters(), ReductionTree(1), StepReportLayout(1).length, ordered=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    return TrainingState(
        model, [optimizer], gradients, (), lambda step: None, AdaptiveBatch(LrScaling.NONE, 1)
    ).register_hooks()


def update(one: TrainingState, what: Update) -> None:
    one.apply_update(torch.ones(one.gradients.length), what, {})
