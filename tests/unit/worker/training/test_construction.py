"""Constructors of a training only store their arguments; `register_hooks` acts."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from elasticdl.collective.gradients import GradientBuffers
from elasticdl.collective.tree import ReductionTree
from elasticdl.errors import ElasticDLError
from elasticdl.model.embeddings.attach import TorchIdLookahead
from elasticdl.model.embeddings.layers import Embedding
from elasticdl.spec import LrScaling
from elasticdl.worker.training.adaptive_batch import AdaptiveBatch
from elasticdl.worker.training.state import TrainingState
from tests.unit.worker.trainings import TAIL


def test_a_training_state_does_not_watch_its_optimizer_before_its_hooks_are_registered() -> None:
    model = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    gradients = GradientBuffers(model.parameters(), ReductionTree(1), TAIL, ordered=True)
    training = TrainingState(model, [optimizer], gradients, (), lambda step: None, AdaptiveBatch(LrScaling.NONE, 1))
    training.begin()

    optimizer.step()
    training.register_hooks()

    with pytest.raises(ElasticDLError, match="was called where gradients are not whole"):
        optimizer.step()


def test_a_lookahead_registers_no_hook_before_the_first_batch() -> None:
    layer = Embedding(2, name="user")
    lookahead = TorchIdLookahead([layer])

    hooks_before_first_batch = len(layer._forward_pre_hooks)
    lookahead.begin_batch({"ids": torch.zeros(1, dtype=torch.int64)})

    assert (hooks_before_first_batch, len(layer._forward_pre_hooks)) == (0, 1)
