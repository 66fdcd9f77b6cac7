"""A model in training as the lease modes see it, whatever its framework: values in, gradients out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

Values = Mapping[str, NDArray[np.float32]]


class Trainee(Protocol):
    def variables(self) -> Values:
        """What is trained and lies in the worker between pulls, by name, always in the same order."""

    def set_variables(self, values: Values) -> None: ...

    def compute(self, features: Any, labels: Any) -> tuple[float, Values]:
        """The mean loss of a batch and the gradients of the variables. Those of embeddings go to the lookups."""

    def update(self, gradients: Values, rate: float) -> None:
        """Apply gradients here, by the model's own optimizer: what the local mode does between two pulls."""
