"""A Keras model as the lease modes see it: its values lie in TensorFlow, its gradients in the face of torch."""

from __future__ import annotations

from typing import Any

import numpy as np

from elasticdl.keras.values import to_torch
from elasticdl.model.torch_trainee import TorchTrainee
from elasticdl.model.trainee import Values


class KerasTrainee(TorchTrainee):
    def variables(self) -> Values:
        return {name: to_torch(variable).float().numpy() for name, variable in self._trained.items()}

    def set_variables(self, values: Values) -> None:
        for name, variable in self._trained.items():
            variable.assign(np.asarray(values[name], order="C"))

    @property
    def _trained(self) -> dict[str, Any]:
        found: dict[str, Any] = self.model.computation.variables.trained  # type: ignore[union-attr,assignment]
        return found
