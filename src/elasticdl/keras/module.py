"""A Keras model as the engine sees one: a torch module with parameters, buffers and a loss that has a gradient.

The weights stay in TensorFlow; the parameters here have shapes and gradients, but no values of their own. Statistics
are the buffers: each computation begins with them and leaves new ones. So all that the engine does
with a torch model (sums along the tree, hand-over, checkpoints, evaluation) it does with this one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from elasticdl.checkpoint.image import Image
from elasticdl.keras import attached, layers
from elasticdl.keras.computing import Computation, Computed, Loss
from elasticdl.keras.embedding import Embedding
from elasticdl.keras.pulls import Floats, Ids, Pulls
from elasticdl.keras.values import to_tensor, to_torch, torch_dtype


class KerasModule(nn.Module):
    def __init__(self, model: Any, loss: Loss | None, spec: tuple[Any, Any]) -> None:
        """`model` is built; `spec` are the specs of features and labels of any batch."""
        super().__init__()
        self.keras = model
        self.embeddings = layers.embeddings(model)
        for name, layer in self.embeddings.items():
            layer.table = name
        self.rows: Callable[[str], tuple[Ids, Floats]] | None = None  # of a table, all of them; for an export
        self.computation = Computation(model, loss, spec)
        for name, variable in self.computation.variables.trained.items():
            shape = torch.zeros((), dtype=torch_dtype(variable.dtype)).expand(tuple(variable.shape))
            self.register_parameter(name, nn.Parameter(shape))
        for name, variable in self.computation.variables.statistics.items():
            self.register_buffer(name, to_torch(variable))

    @property
    def has_table(self) -> bool:
        return bool(self.on_ps)

    @property
    def on_ps(self) -> dict[str, Embedding]:
        """The layers whose rows lie on ps, by the names of their tables."""
        return {name: layer for name, layer in self.embeddings.items() if layers.is_on_ps(layer)}

    def attached(self, optimizer: Any) -> attached.KerasAttached:
        """Its layers on ps, with tables that this optimizer updates."""
        return attached.KerasAttached(self, optimizer.keras)

    def hold_rows(self, image: Image, place: Path) -> Image:
        """The image of a checkpoint in `place` with the rows that lay on ps; ids without one are as they were built."""
        return attached.hold_rows(self, image, place)

    def batch_loss(self, features: Any, labels: Any) -> torch.Tensor:
        """The mean loss of a batch to train with; its backward pass leaves the gradients in the parameters."""
        computation = self.computation
        with computation.training_pulls.running():
            computed = Computed(*computation.train(features, labels, computation.seeds(), self._statistics()))
        for buffer, value in zip(self.buffers(), computed.statistics, strict=True):
            buffer.copy_(to_torch(value))
        loss: torch.Tensor = _Bridge.apply(computed, computation.training_pulls, *self.parameters())  # type: ignore[no-untyped-call]
        return loss

    def forward(self, features: Any) -> Any:
        """Predictions, as tensors of TensorFlow."""
        with self.computation.serving_pulls.running():
            found = self.computation.predict(features, self._statistics())
        return tuple(found) if isinstance(found, list) else found

    def settle(self) -> Any:
        """The Keras model, with the statistics in it."""
        for name, variable in self.computation.variables.statistics.items():
            variable.assign(to_tensor(self.get_buffer(name), variable.dtype))
        return self.keras

    def state_dict(self, *_: Any, **__: Any) -> dict[str, torch.Tensor]:  # type: ignore[override]
        variables = self.computation.variables
        statistics = {name: self.get_buffer(name).clone() for name in variables.statistics}
        kept = {name: to_torch(variable) for name, variable in (variables.trained | variables.frozen).items()}
        return kept | statistics | self._held()

    def load_state_dict(self, state_dict: Mapping[str, Any], *_: Any, **__: Any) -> Any:
        """Raises RuntimeError where the values are of another model, as torch's own does."""
        variables = self.computation.variables
        kept = variables.trained | variables.frozen
        rest = self._hold(state_dict)
        if problem := _mismatch(kept | variables.statistics, rest):
            raise RuntimeError(problem)
        for name, variable in kept.items():
            variable.assign(to_tensor(state_dict[name], variable.dtype))
        with torch.no_grad():
            for name in variables.statistics:
                self.get_buffer(name).copy_(state_dict[name])

    def _held(self) -> dict[str, torch.Tensor]:
        """Rows of layers of any ids, where an export has them."""
        found: dict[str, torch.Tensor] = {}
        for name, layer in self.embeddings.items():
            if isinstance(layer, Embedding) and layer.held is not None:
                found |= {f"{name}/ids": to_torch(layer.held[0]), f"{name}/rows": to_torch(layer.held[1])}
        return found

    def _hold(self, values: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Let layers of any ids have the rows there are among `values`; returns the others."""
        rest = dict(values)
        for name, layer in self.embeddings.items():
            if isinstance(layer, Embedding) and layer.takes_any and f"{name}/rows" in rest:
                ids, rows = rest.pop(f"{name}/ids"), rest.pop(f"{name}/rows")
                layer.hold(ids.numpy().astype(np.int64), rows.numpy())
        return rest

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
