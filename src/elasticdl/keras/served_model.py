"""A Keras model that is exported as another one, for instance with its preprocessing in front."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

from elasticdl.keras.runtime import keras


class ServedModel(keras.Model):
    """A model that is trained as it is and exported as the model that `served` returns."""

    @abstractmethod
    def served(self) -> tuple[Any, dict[str, Any]]:
        """Returns the model to export, and the `tf.TensorSpec` of each of its inputs."""
