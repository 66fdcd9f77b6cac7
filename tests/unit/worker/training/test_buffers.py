"""Copies of a model's buffers, whatever the script does to its modules."""

from __future__ import annotations

import torch
from torch import nn

from elasticdl.worker.training.buffers import ModelBuffers


class Shared(nn.Module):
    """A buffer that two modules share, one that is set later, and BatchNorm's."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(2)
        self.again = self.norm
        self.late: torch.Tensor | None
        self.register_buffer("late", None)
        self.register_buffer("own", torch.zeros(3))


def names(model: nn.Module) -> list[str]:
    return [name for name, _ in model.named_buffers()]


def test_the_names_are_those_of_torch() -> None:
    model = nn.Sequential(Shared(), nn.Linear(1, 1), nn.BatchNorm1d(4))

    assert list(ModelBuffers(model).capture()) == names(model)


def test_restoring_undoes_later_changes_of_buffers() -> None:
    model = Shared()
    buffers = ModelBuffers(model)
    before = buffers.capture()

    model.norm(torch.randn(8, 2))
    model.own = torch.ones(3)  # another tensor in its place
    buffers.restore(before)

    assert all(torch.equal(value, dict(model.named_buffers())[name]) for name, value in before.items())
    assert model.own.tolist() == [0.0, 0.0, 0.0]


def test_a_buffer_that_is_set_or_registered_later_is_captured() -> None:
    model = Shared()
    buffers = ModelBuffers(model)
    buffers.capture()

    model.late = torch.ones(1)
    assert list(buffers.capture()) == names(model)
    model.norm.register_buffer("more", torch.ones(1))
    assert list(buffers.capture()) == names(model)


def test_a_model_without_buffers_has_none() -> None:
    assert ModelBuffers(nn.Linear(2, 2)).capture() == {}


def test_a_buffer_that_was_registered_since_stays() -> None:
    model = Shared()
    buffers = ModelBuffers(model)
    before = buffers.capture()

    model.late = torch.ones(1)
    model.get_buffer("own").fill_(2.0)
    buffers.restore(before)

    assert model.get_buffer("late").tolist() == [1.0] and model.get_buffer("own").tolist() == [0.0, 0.0, 0.0]
