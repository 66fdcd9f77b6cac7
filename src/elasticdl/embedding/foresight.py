"""Which ids the next batch will ask for: seen in the first batch, where layers took a part of the features as it is."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from elasticdl.embedding.layer import Layer
from elasticdl.ps.wire import Ids


class Origin(NamedTuple):
    """A tensor of the features, or some columns of it."""

    path: tuple[Hashable, ...]
    columns: int | slice | None = None

    def ids(self, features: Any) -> Ids | None:
        """What this names in other features; None where they have no such thing."""
        leaf = features
        try:
            for key in self.path:
                leaf = leaf[key]
            part = leaf if self.columns is None else leaf[:, self.columns]
        except (KeyError, IndexError, TypeError):
            return None
        values = part.values() if part.is_nested else part
        return values.reshape(-1).to("cpu", torch.int64).numpy()  # type: ignore[no-any-return]


class Foresight:
    """Watches the layers in one batch, and knows from then on."""

    def __init__(self, layers: Sequence[Layer]) -> None:
        self._features: Any = None
        self._origins: list[tuple[str, Origin]] = []
        self._hooks = [layer.register_forward_pre_hook(self._called) for layer in layers]

    def begin(self, features: Any) -> None:
        """A batch with these features is about to be computed."""
        if self._features is None:
            self._features = features
        elif self._hooks:
            for hook in self._hooks:
                hook.remove()
            self._hooks = []

    def ids(self, features: Any) -> dict[str, list[Ids]]:
        """By table, what a batch with these features will ask for as far as can be told. Nothing while watching."""
        found: dict[str, list[Ids]] = {}
        for table, origin in self._origins:
            ids = origin.ids(features)
            if ids is not None and not any(np.array_equal(ids, known) for known in found.get(table, ())):
                found.setdefault(table, []).append(ids)
        return found

    def _called(self, layer: torch.nn.Module, arguments: tuple[Any, ...]) -> None:
        ids = arguments[0][0] if isinstance(arguments[0], tuple) else arguments[0]
        origin = locate(ids, self._features) if self._features is not None else None
        if origin is not None:
            assert isinstance(layer, Layer)
            self._origins.append((layer.table, origin))


def locate(ids: Tensor, features: Any) -> Origin | None:
    """Where in `features` these very ids lie; None where they are a copy, or computed."""
    return next((found for path, leaf in _leaves(features, ()) if (found := _part(ids, path, leaf))), None)


def _part(ids: Tensor, path: tuple[Hashable, ...], leaf: Tensor) -> Origin | None:
    if ids is leaf:
        return Origin(path)
    if ids.is_nested or leaf.is_nested or ids.dtype != leaf.dtype or not ids.numel():
        return None
    if ids.untyped_storage().data_ptr() != leaf.untyped_storage().data_ptr():
        return None
    distance = int(ids.storage_offset() - leaf.storage_offset())
    if ids.numel() == leaf.numel() and not distance and ids.is_contiguous() and leaf.is_contiguous():
        return Origin(path)
    if leaf.ndim != 2 or ids.shape[0] != leaf.shape[0] or ids.stride(0) != leaf.stride(0) or leaf.stride(1) != 1:
        return None
    if ids.ndim == 1 and 0 <= distance < leaf.shape[1]:
        return Origin(path, distance)
    if ids.ndim == 2 and ids.stride(1) == 1 and 0 <= distance <= leaf.shape[1] - ids.shape[1]:
        return Origin(path, slice(distance, distance + ids.shape[1]))
    return None


def _leaves(value: Any, path: tuple[Hashable, ...]) -> Iterator[tuple[tuple[Hashable, ...], Tensor]]:
    if isinstance(value, Tensor):
        yield path, value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _leaves(item, (*path, key))
    elif isinstance(value, tuple | list):
        for place, item in enumerate(value):
            yield from _leaves(item, (*path, place))
