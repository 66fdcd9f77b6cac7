"""A model as the lease modes train it, in any framework: values in, gradients out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

NamedArrays = Mapping[str, NDArray[np.float32]]


class TrainableModel(Protocol):
    """A model whose dense variables are on ps between two batches."""

    def variables(self) -> NamedArrays:
        """The dense variables that are trained, by name, always in the same order."""

    def set_variables(self, values: NamedArrays) -> None: ...

    def compute(self, features: Any, labels: Any) -> tuple[float, NamedArrays]:
        """The mean loss of a batch and the gradients of the variables. Those of embeddings go to the lookups."""

    def update(self, gradients: NamedArrays, rate: float) -> None:
        """Apply gradients in this worker with the model's own optimizer, as the local mode does between two pulls."""


class TorchTrainable:
    """A torch model. Its trainable parameters are the variables; on the host, the arrays share their memory."""

    def __init__(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        batch_loss: Callable[[Any, Any], Tensor],
        on_gradients: Callable[[], None],
    ) -> None:
        """`batch_loss` takes features and labels; `on_gradients` may change the gradients before they are pushed."""
        self.model = model
        self._on_gradients = on_gradients
        self._optimizer = optimizer
        self._batch_loss = batch_loss
        self._parameters = {name: p for name, p in model.named_parameters() if p.requires_grad}

    def variables(self) -> NamedArrays:
        return {name: _to_array(parameter.detach()) for name, parameter in self._parameters.items()}

    def set_variables(self, values: NamedArrays) -> None:
        with torch.no_grad():
            for name, parameter in self._parameters.items():
                parameter.copy_(torch.from_numpy(np.asarray(values[name], order="C")))

    def compute(self, features: Any, labels: Any) -> tuple[float, NamedArrays]:
        for parameter in self._parameters.values():
            parameter.grad = None
        loss = self._batch_loss(features, labels)
        loss.backward()  # type: ignore[no-untyped-call]
        self._on_gradients()
        return float(loss.detach()), {name: _dense_gradient(parameter) for name, parameter in self._parameters.items()}

    def update(self, gradients: NamedArrays, rate: float) -> None:
        for group in self._optimizer.param_groups:
            group["lr"] = rate
        for name, parameter in self._parameters.items():
            parameter.grad = torch.from_numpy(np.asarray(gradients[name], order="C")).to(parameter)
        self._optimizer.step()


def _dense_gradient(parameter: nn.Parameter) -> NDArray[np.float32]:
    if parameter.grad is None:  # no part of it was used
        return np.zeros(tuple(parameter.shape), np.float32)
    return _to_array(parameter.grad.to_dense() if parameter.grad.is_sparse else parameter.grad)


def _to_array(tensor: Tensor) -> NDArray[np.float32]:
    array: NDArray[np.float32] = tensor.to("cpu", torch.float32).numpy()
    return array
