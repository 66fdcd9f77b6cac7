"""A torch module as the lease modes see it: variables of any shape go out and come back."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from elasticdl.model.trainable import TorchTrainable


class Line(nn.Module):
    """A weight, and a bias that is a number: no dimension at all."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(2))
        self.bias = nn.Parameter(torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.weight + self.bias


def test_a_variable_without_dimensions_is_set_and_updated_as_any_other() -> None:
    model = Line()
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    trainee = TorchTrainable(model, optimizer, lambda x, y: (model(x) - y).sum(), lambda: None)

    trainee.set_variables({"weight": np.array([2.0, 3.0], np.float32), "bias": np.array(5.0, np.float32)})
    loss, gradients = trainee.compute(torch.ones(1, 2), torch.zeros(1))
    trainee.update(gradients, 0.5)

    assert loss == 10.0 and gradients["bias"].shape == ()
    assert {name: value.tolist() for name, value in trainee.variables().items()} == {"weight": [1.5, 2.5], "bias": 4.5}
