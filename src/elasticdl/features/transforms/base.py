"""The base class of all transforms: one definition, called with the values of any framework."""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Mapping
from functools import cached_property
from importlib import import_module
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from elasticdl.features.transforms.ops import Array, Ops

MAX_BINS = 2**62
FRAMEWORK_MODULES = {"torch": "elasticdl.features.torch", "keras": "elasticdl.keras.features"}


class Transform(ABC):
    """A frozen dataclass that is called with a column: NumPy, Arrow, lists, `Ragged`, `Sparse`, or tensors."""

    # TensorFlow's AutoGraph does not convert the code of objects with this attribute; here it has nothing to convert.
    autograph_info__: ClassVar[dict[str, Any]] = {}

    def __call__(self, values: Any) -> Any:
        """Transforms a column in the framework of its values; ragged and sparse columns stay ragged and sparse."""
        # Imported by name, so that a framework is loaded only by a process that has its tensors.
        if framework := detect_framework(values):
            return import_module(FRAMEWORK_MODULES[framework]).apply(self, values)
        return self.transform_arrays(values)

    @abstractmethod
    def transform_arrays(self, values: Any) -> Any:
        """Transforms a column of NumPy, Arrow or lists."""

    @cached_property
    def tables(self) -> dict[str, NDArray[Any]]:
        """The constants that the transform needs, as arrays."""
        return {}


class ElementwiseTransform(Transform):
    """A transform that computes each value on its own."""

    @abstractmethod
    def compute(self, ops: Ops, values: Array, tables: Mapping[str, Array]) -> Array:
        """Computes each value with the operations of one framework; `tables` holds its own copies of `self.tables`."""

    def transform_arrays(self, values: Any) -> Any:
        from elasticdl.features.transforms import array_columns
        from elasticdl.features.transforms.numpy_ops import NUMPY_OPS

        flat, rebuild = array_columns.flatten_column(values)
        with np.errstate(all="ignore"):
            return rebuild(self.compute(NUMPY_OPS, flat, self.tables))


def detect_framework(values: Any) -> str:
    """Returns "torch", "keras", or "" for NumPy, Arrow and lists. A list is judged by its first value."""
    while isinstance(values, list | tuple) and values:
        values = values[0]
    if (torch := sys.modules.get("torch")) and isinstance(values, torch.Tensor):
        return "torch"
    if (keras := sys.modules.get("keras")) and isinstance(values, keras.KerasTensor):
        return "keras"
    if (tf := sys.modules.get("tensorflow")) and isinstance(
        values, tf.Tensor | tf.RaggedTensor | tf.SparseTensor | tf.Variable
    ):
        return "keras"
    return ""


def check_bins(owner: str, parameter: str, received: Any) -> None:
    is_whole = isinstance(received, int | np.integer) and not isinstance(received, bool)
    if not is_whole or not 0 < received <= MAX_BINS:
        raise ValueError(f"{owner}: expected {parameter} from 1 to 2^62. Received: {received!r}")
