"""A Keras model as the engine sees one: a torch module with parameters, buffers and a loss that has a gradient.

The weights stay in TensorFlow; the parameters here have shapes and gradients, but no values of their own. Statistics
are the buffers: each computation begins with them and leaves new ones. So all that the engine does
with a torch model (sums along the tree, hand-over, checkpoints, evaluation) it does with this one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from elasticdl.keras.computing import Computation, Computed, Loss
from elasticdl.keras.pulls import Pulls
from elasticdl.keras.values import to_tensor, to_torch, torch_dtype


class KerasModule(nn.Module):
    def __init__(self, model: Any, loss: Loss | None, spec: tuple[Any, Any]) -> None:
        """`model` is built; `spec` are the specs of features and labels of any batch."""
        super().__init__()
        self.keras = model
        self.computation = Computation(model, loss, spec)
        for name, variable in self.computation.variables.trained.items():
            shape = torch.zeros((), dtype=torch_dtype(variable.dtype)).expand(tuple(variable.shape))
            self.register_parameter(name, nn.Parameter(shape))
        for name, variable in self.computation.variables.statistics.items():
            self.register_buffer(name, to_torch(variable))

    def batch_loss(self, features: Any, labels: Any) -> torch.Tensor:
        """The mean loss of a batch to train with; its backward pass leaves the gradients in the parameters."""
        computation = self.computation
        computed = Computed(*computation.train(features, labels, computation.seeds(), self._statistics()))
        for buffer, value in zip(self.buffers(), computed.statistics, strict=True):
            buffer.copy_(to_torch(value))
        loss: torch.Tensor = _Bridge.apply(computed, computation.training_pulls, *self.parameters())  # type: ignore[no-untyped-call]
        return loss

    def forward(self, features: Any) -> Any:
        """Predictions, as tensors of TensorFlow."""
        return self.computation.predict(features, self._statistics())

    def settle(self) -> Any:
        """The Keras model, with the statistics in it."""
        for name, variable in self.computation.variables.statistics.items():
            variable.assign(to_tensor(self.get_buffer(name), variable.dtype))
        return self.keras

    def state_dict(self, *_: Any, **__: Any) -> dict[str, torch.Tensor]:  # type: ignore[override]
        variables = self.computation.variables
        statistics = {name: self.get_buffer(name).clone() for name in variables.statistics}
        kept = {name: to_torch(variable) for name, variable in (variables.trained | variables.frozen).items()}
        return kept | statistics

    def load_state_dict(self, state_dict: Mapping[str, Any], *_: Any, **__: Any) -> Any:
        """Raises RuntimeError where the values are of another model, as torch's own does."""
        variables = self.computation.variables
        kept = variables.trained | variables.frozen
        if problem := _mismatch(kept | variables.statistics, state_dict):
            raise RuntimeError(problem)
        for name, variable in kept.items():
            variable.assign(to_tensor(state_dict[name], variable.dtype))
        with torch.no_grad():
            for name in variables.statistics:
                self.get_buffer(name).copy_(state_dict[name])

    def _statistics(self) -> list[Any]:
        statistics = self.computation.variables.statistics
        return [to_tensor(self.get_buffer(name), variable.dtype) for name, variable in statistics.items()]


class _Bridge(torch.autograd.Function):
    """A loss that was computed elsewhere, gradients included."""

    @staticmethod
    def forward(ctx: Any, computed: Computed, pulls: Pulls, *parameters: torch.Tensor) -> torch.Tensor:
        ctx.computed, ctx.pulls = computed, pulls
        return to_torch(computed.loss)

    @staticmethod
    def backward(ctx: Any, *weights: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        (weight,) = weights
        computed: Computed = ctx.computed
        ctx.pulls.give([(to_torch(gradient) * weight).numpy() for gradient in computed.row_gradients])
        return (None, None, *(to_torch(gradient) * weight for gradient in computed.gradients))


def _mismatch(variables: Mapping[str, Any], values: Mapping[str, torch.Tensor]) -> str:
    missing, foreign = sorted(variables.keys() - values.keys()), sorted(values.keys() - variables.keys())
    if missing or foreign:
        return f"missing {', '.join(missing) or 'nothing'}; not in the model: {', '.join(foreign) or 'nothing'}"
    for name, variable in variables.items():
        if tuple(variable.shape) != tuple(values[name].shape):
            return f"{name}: expected the shape {tuple(variable.shape)}. Received: {tuple(values[name].shape)}"
    return ""
