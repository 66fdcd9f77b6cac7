"""A Keras model and its optimizer as the engine sees them: a torch module and a torch optimizer.

The values stay in TensorFlow.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from elasticdl.checkpoint.captured_state import CapturedState
from elasticdl.keras.adapter import layer_names
from elasticdl.keras.adapter.computation import CompiledModel, ComputedBatch, LossFunction
from elasticdl.keras.adapter.tensors import to_tensorflow, to_torch, torch_dtype
from elasticdl.keras.embeddings import attach
from elasticdl.keras.embeddings.layers import Embedding
from elasticdl.keras.embeddings.row_pulls import Floats, Ids, RowPulls
from elasticdl.keras.runtime import keras, tf
from elasticdl.model.adapted import AdaptedModule, AdaptedOptimizer


class KerasModule(AdaptedModule):
    """A Keras model as a torch module. Its parameters are places for gradients; the values are Keras's variables."""

    def __init__(self, model: Any, loss: LossFunction | None, spec: tuple[Any, Any]) -> None:
        """`model` is built; `spec` are the specs of features and labels of any batch."""
        super().__init__()
        self.keras = model
        self.embeddings = layer_names.find_embeddings(model)
        for name, layer in self.embeddings.items():
            layer.table = name
        self.rows: Callable[[str], tuple[Ids, Floats]] | None = None  # of a table, all of them; for an export
        self.computation = CompiledModel(model, loss, spec)
        for name, variable in self.computation.variables.trained.items():
            shape = torch.zeros((), dtype=torch_dtype(variable.dtype)).expand(tuple(variable.shape))
            self.register_parameter(name, nn.Parameter(shape))
        for name, variable in self.computation.variables.statistics.items():
            self.register_buffer(name, to_torch(variable))

    @property
    def has_table(self) -> bool:
        return bool(self.ps_layers)

    @property
    def ps_layers(self) -> dict[str, Embedding]:
        """The layers whose rows lie on ps, by the names of their tables."""
        return {name: layer for name, layer in self.embeddings.items() if layer_names.is_on_ps(layer)}

    def attach_tables(self, optimizer: AdaptedOptimizer) -> attach.KerasEmbeddingLayers:
        assert isinstance(optimizer, KerasOptimizer)
        return attach.KerasEmbeddingLayers(self, optimizer.keras)

    def restore_rows(self, captured: CapturedState, directory: Path) -> CapturedState:
        """The captured state with the rows that were on ps. Ids without a row have the value they were built with."""
        return attach.restore_rows(self, captured, directory)

    def batch_loss(self, features: Any, labels: Any) -> torch.Tensor:
        """The mean loss of a batch to train with; its backward pass leaves the gradients in the parameters."""
        computation = self.computation
        with computation.training_pulls.running():
            computed = ComputedBatch(*computation.train(features, labels, computation.draw_seeds(), self._statistics()))
        for buffer, value in zip(self.buffers(), computed.statistics, strict=True):
            buffer.copy_(to_torch(value))
        loss: torch.Tensor = _PrecomputedLoss.apply(computed, computation.training_pulls, *self.parameters())  # type: ignore[no-untyped-call]
        return loss

    def forward(self, features: Any) -> Any:
        """Predictions, as tensors of TensorFlow."""
        with self.computation.serving_pulls.running():
            predictions = self.computation.predict(features, self._statistics())
        return tuple(predictions) if isinstance(predictions, list) else predictions

    def write_statistics(self) -> Any:
        """Write the statistics into the Keras model, and return it."""
        for name, variable in self.computation.variables.statistics.items():
            variable.assign(to_tensorflow(self.get_buffer(name), variable.dtype))
        return self.keras

    def state_dict(self, *_: Any, **__: Any) -> dict[str, torch.Tensor]:  # type: ignore[override]
        variables = self.computation.variables
        statistics = {name: self.get_buffer(name).clone() for name in variables.statistics}
        values = {name: to_torch(variable) for name, variable in (variables.trained | variables.frozen).items()}
        return values | statistics | self._held_rows()

    def load_state_dict(self, state_dict: Mapping[str, Any], *_: Any, **__: Any) -> Any:
        """Raises RuntimeError if the values are those of another model, as torch does."""
        variables = self.computation.variables
        assigned = variables.trained | variables.frozen
        dense = self._hold_rows(state_dict)
        if problem := _describe_mismatch(assigned | variables.statistics, dense):
            raise RuntimeError(problem)
        for name, variable in assigned.items():
            variable.assign(to_tensorflow(state_dict[name], variable.dtype))
        with torch.no_grad():
            for name in variables.statistics:
                self.get_buffer(name).copy_(state_dict[name])

    def _held_rows(self) -> dict[str, torch.Tensor]:
        """The rows of layers that take any id, if an export holds them."""
        rows: dict[str, torch.Tensor] = {}
        for name, layer in self.embeddings.items():
            if isinstance(layer, Embedding) and layer.held is not None:
                rows |= {f"{name}/ids": to_torch(layer.held[0]), f"{name}/rows": to_torch(layer.held[1])}
        return rows

    def _hold_rows(self, values: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Let layers that take any id hold their rows among `values`; returns the other values."""
        others = dict(values)
        for name, layer in self.embeddings.items():
            if isinstance(layer, Embedding) and layer.takes_any_id and f"{name}/rows" in others:
                ids, read_rows = others.pop(f"{name}/ids"), others.pop(f"{name}/rows")
                layer.hold_rows(ids.numpy().astype(np.int64), read_rows.numpy())
        return others

    def _statistics(self) -> list[Any]:
        statistics = self.computation.variables.statistics
        return [to_tensorflow(self.get_buffer(name), variable.dtype) for name, variable in statistics.items()]


class _PrecomputedLoss(torch.autograd.Function):
    """A loss that TensorFlow has computed, with its gradients."""

    @staticmethod
    def forward(ctx: Any, computed: ComputedBatch, pulls: RowPulls, *parameters: torch.Tensor) -> torch.Tensor:
        ctx.computed, ctx.pulls = computed, pulls
        return to_torch(computed.loss)

    @staticmethod
    def backward(ctx: Any, *weights: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        (weight,) = weights
        computed: ComputedBatch = ctx.computed
        ctx.pulls.give_gradients([(to_torch(gradient) * weight).numpy() for gradient in computed.row_gradients])
        return (None, None, *(to_torch(gradient) * weight for gradient in computed.gradients))


def _describe_mismatch(variables: Mapping[str, Any], values: Mapping[str, torch.Tensor]) -> str:
    missing, foreign = sorted(variables.keys() - values.keys()), sorted(values.keys() - variables.keys())
    if missing or foreign:
        return f"missing {', '.join(missing) or 'nothing'}; not in the model: {', '.join(foreign) or 'nothing'}"
    for name, variable in variables.items():
        if tuple(variable.shape) != tuple(values[name].shape):
            return f"{name}: expected the shape {tuple(variable.shape)}. Received: {tuple(values[name].shape)}"
    return ""


class KerasOptimizer(AdaptedOptimizer):
    """A Keras optimizer as a torch optimizer. The rate of its only group mirrors that of the Keras optimizer."""

    def __init__(self, module: KerasModule, optimizer: Any) -> None:
        self.keras = optimizer
        self._module = module
        self._variables = list(module.computation.variables.trained.values())
        optimizer.build(self._variables)
        module.keras.optimizer = optimizer  # where Keras's callbacks look for it
        super().__init__(module.parameters(), {"lr": self._rate()})
        self._mirrored = self._rate()
        self._apply = tf.function(
            lambda gradients: optimizer.apply(gradients, self._variables),
            input_signature=[[tf.TensorSpec(v.shape, v.dtype) for v in self._variables]],
            autograph=False,
        )

    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        rate = self.param_groups[0]["lr"]
        if rate != self._mirrored:  # it was set here; a rate that a Keras callback sets stays
            self.keras.learning_rate = rate
        parameters = list(self._module.parameters())
        if all(parameter.grad is None for parameter in parameters):
            return  # a step without records
        gradients = [torch.zeros_like(p) if p.grad is None else p.grad for p in parameters]
        self._apply([to_tensorflow(g, v.dtype) for g, v in zip(gradients, self._variables, strict=True)])
        self._mirror_rate()

    def state_dict(self) -> dict[str, Any]:
        """The state, all in one group: Keras's variables belong to no single parameter."""
        group = {"lr": self._rate(), "variables": [to_torch(variable) for variable in self.keras.variables]}
        return {"state": {}, "param_groups": [group]}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Raises ValueError if the state is that of another optimizer, as torch does."""
        (group,) = state_dict["param_groups"]
        values = group.get("variables", [])
        shapes = [tuple(variable.shape) for variable in self.keras.variables]
        if [tuple(value.shape) for value in values] != shapes:
            raise ValueError(f"{self.keras.name} has {len(shapes)} variables of other shapes than the {len(values)}")
        for variable, value in zip(self.keras.variables, values, strict=True):
            variable.assign(to_tensorflow(value, variable.dtype))
        self._mirror_rate()

    @property
    def is_scheduled(self) -> bool:
        return isinstance(self.keras._learning_rate, keras.optimizers.schedules.LearningRateSchedule)

    def rate_after(self, step: int) -> float:
        """The learning rate after `step` updates."""
        return float(self.keras._learning_rate(step)) if self.is_scheduled else self._rate()

    def _mirror_rate(self) -> None:
        self.param_groups[0]["lr"] = self._mirrored = self._rate()

    def _rate(self) -> float:
        return float(self.keras.learning_rate)
