"""Python values as JSON and tensors, and back, without loss.

JSON has neither tuples nor tensors: they become `{"tuple": [...]}` and `{"tensor": name}`, and a dict becomes
`{"dict": [[key, value], ...]}` (a Counter, as in MultiStepLR, `{"counter": ...}`), so that every value of a module or
optimizer has a unique representation.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import torch

from elasticdl.errors import CheckpointFailed


def copy_to_host(tensor: torch.Tensor) -> torch.Tensor:
    """A contiguous copy in host memory, which shares no memory with `tensor`."""
    return tensor.detach().to("cpu", copy=True).contiguous()


def pack_value(value: Any, name: str, tensors: dict[str, torch.Tensor]) -> Any:
    """`value` as JSON; its tensors are copied into `tensors` under names that begin with `name`."""
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, torch.Tensor):
        while name in tensors:  # {1: …, "1": …} and {"a/b": …, "a": {"b": …}} have the same names
            name += "'"
        tensors[name] = copy_to_host(value)
        return {"tensor": name}
    if isinstance(value, list):
        return [pack_value(item, f"{name}/{i}", tensors) for i, item in enumerate(value)]
    if isinstance(value, tuple):
        return {"tuple": [pack_value(item, f"{name}/{i}", tensors) for i, item in enumerate(value)]}
    if isinstance(value, dict):
        pairs = [
            [pack_value(key, name, tensors), pack_value(item, f"{name}/{key}", tensors)] for key, item in value.items()
        ]
        return {"counter" if isinstance(value, Counter) else "dict": pairs}
    raise CheckpointFailed(
        f"{name}: cannot store a {type(value).__name__} in a checkpoint; "
        "expected tensors, numbers, text, None, or lists, tuples and dicts of them"
    )


def unpack_value(value: Any, tensors: dict[str, torch.Tensor]) -> Any:
    """The inverse of `pack_value`; tensors are copies."""
    if isinstance(value, list):
        return [unpack_value(item, tensors) for item in value]
    if isinstance(value, dict):
        ((kind, content),) = value.items()
        if kind == "tensor":
            return tensors[content].clone()
        if kind == "tuple":
            return tuple(unpack_value(item, tensors) for item in content)
        items = {unpack_value(key, tensors): unpack_value(item, tensors) for key, item in content}
        return Counter(items) if kind == "counter" else items
    return value
