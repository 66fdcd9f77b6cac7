"""Converts values of TensorFlow to torch tensors and back."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from elasticdl.keras.runtime import tf

_HALF = {"bfloat16", "float16"}  # kept as float32, which holds each of their values


def to_torch(value: Any) -> torch.Tensor:
    """A copy of a Keras variable or a tensor."""
    array = np.asarray(tf.convert_to_tensor(value).numpy())
    return torch.from_numpy(array.astype(np.float32) if array.dtype.name in _HALF else array)


def to_tensorflow(value: torch.Tensor, dtype: str) -> Any:
    return tf.cast(tf.constant(value.detach().numpy()), dtype)


def torch_dtype(name: str) -> torch.dtype:
    """The type that `to_torch` converts a value of this type to."""
    dtype: torch.dtype = getattr(torch, "float32" if name in _HALF else name)
    return dtype
