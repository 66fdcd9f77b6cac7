"""A Keras optimizer as the engine sees one: it applies the gradients of the parameters to the Keras variables."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from elasticdl.keras.module import KerasModule
from elasticdl.keras.runtime import keras, tf
from elasticdl.keras.values import to_tensor, to_torch


class KerasOptimizer(torch.optim.Optimizer):
    """Rate and state are those of the Keras optimizer; the learning rate of the only group mirrors its rate."""

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
        if rate != self._mirrored:  # somebody set it here; what a callback of Keras sets there stays as it is
            self.keras.learning_rate = rate
        parameters = list(self._module.parameters())
        if all(parameter.grad is None for parameter in parameters):
            return  # a step without records
        gradients = [torch.zeros_like(p) if p.grad is None else p.grad for p in parameters]
        self._apply([to_tensor(g, v.dtype) for g, v in zip(gradients, self._variables, strict=True)])
        self._mirror()

    def state_dict(self) -> dict[str, Any]:
        """All in one group: Keras's variables belong to no single parameter."""
        group = {"lr": self._rate(), "variables": [to_torch(variable) for variable in self.keras.variables]}
        return {"state": {}, "param_groups": [group]}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Raises ValueError where the state is of another optimizer, as torch's own does."""
        (group,) = state_dict["param_groups"]
        values = group.get("variables", [])
        shapes = [tuple(variable.shape) for variable in self.keras.variables]
        if [tuple(value.shape) for value in values] != shapes:
            raise ValueError(f"{self.keras.name} has {len(shapes)} variables of other shapes than the {len(values)}")
        for variable, value in zip(self.keras.variables, values, strict=True):
            variable.assign(to_tensor(value, variable.dtype))
        self._mirror()

    @property
    def is_scheduled(self) -> bool:
        return isinstance(self.keras._learning_rate, keras.optimizers.schedules.LearningRateSchedule)

    def rate(self, step: int) -> float:
        """The rate after so many updates, whoever applied them."""
        return float(self.keras._learning_rate(step)) if self.is_scheduled else self._rate()

    def _mirror(self) -> None:
        self.param_groups[0]["lr"] = self._mirrored = self._rate()

    def _rate(self) -> float:
        return float(self.keras.learning_rate)
