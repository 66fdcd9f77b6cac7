"""Attaches a model's embedding layers to tables, and predicts which ids the next batch will look up."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from elasticdl.errors import ModelError
from elasticdl.model.embeddings import moving, optimizer_rules
from elasticdl.model.embeddings.layers import TableLayer
from elasticdl.model.embeddings.moving import MovePolicy
from elasticdl.model.embeddings.row_sources import RowSource
from elasticdl.ps.client.lookups import TableClient
from elasticdl.ps.snapshots.exported_tables import pull_whole_table
from elasticdl.ps.tables.optimizer import Optimizer
from elasticdl.ps.tables.table import TableSpec
from elasticdl.ps.wire.messages import Floats, Ids

_ROWS_PER_REQUEST = 1 << 16  # rows in one request


class TorchEmbeddingLayers:
    """The embedding layers of one torch model that have tables; see `EmbeddingLayers`."""

    def __init__(self, model: nn.Module, policy: MovePolicy, min_bytes: int) -> None:
        self.model = model
        self._policy, self._min_bytes = policy, min_bytes
        self.moved, self.notes = moving.move_embeddings(model, policy, min_bytes)
        self.layers = find_table_layers(model)
        self.table_specs: list[TableSpec] = []
        self._optimizer: torch.optim.Optimizer | None = None

    def for_model(self, model: nn.Module) -> TorchEmbeddingLayers:
        """The layers of another model of the same kind, without the values it was built with."""
        layers = TorchEmbeddingLayers(model, self._policy, self._min_bytes)
        layers.drop_initial_rows()
        return layers

    def use_optimizer(self, optimizer: torch.optim.Optimizer) -> None:
        """Use the rule of this optimizer for all tables, and remove the weights of moved layers from it."""
        moving.remove_from_optimizer(optimizer, self.moved)
        self._optimizer = optimizer
        if not any(group["params"] for group in optimizer.param_groups):
            raise ModelError("the model: expected a dense layer beside its embeddings. Received: none with parameters")
        self.table_specs = make_table_specs(self.layers, optimizer)

    @property
    def optimizer_rule(self) -> Optimizer:
        """The rule of the model's optimizer."""
        assert self._optimizer is not None
        return optimizer_rules.table_optimizer(self._optimizer)

    def lookahead(self) -> TorchIdLookahead:
        return TorchIdLookahead(self.layers)

    def attach_source(self, source: RowSource) -> None:
        for layer in self.layers:
            layer.attach_source(source)

    def put_initial_rows(self, tables: TableClient) -> None:
        """Put the values that moved layers were built with into their tables, request by request."""
        for moved in self.moved:
            values = moved.weight.numpy()
            for start in range(0, len(values), _ROWS_PER_REQUEST):
                rows = values[start : start + _ROWS_PER_REQUEST]
                tables.insert_rows(moved.layer.table, np.arange(start, start + len(rows)), rows)

    def drop_initial_rows(self) -> None:
        """Free the values of moved layers: they are on the ps, or will come from a checkpoint."""
        for moved in self.moved:
            moved.drop_weight()

    @contextmanager
    def full_model(self, tables: TableClient, rows: Callable[[str], tuple[Ids, Floats]]) -> Iterator[None]:
        """The model with all its rows in it: moved layers are plain torch layers again, others hold their rows.

        `rows` returns all ids and rows of a table.
        """
        own = [layer for layer in self.layers if all(layer is not moved.layer for moved in self.moved)]
        device = next(self.model.parameters()).device
        for moved in self.moved:
            (spec,) = [spec for spec in self.table_specs if spec.name == moved.layer.table]
            moving.put_plain_back(self.model, moved, torch.from_numpy(pull_whole_table(tables, spec)).to(device))
        for layer in own:
            layer.store_rows(*rows(layer.table))
            layer.to(device)
        try:
            yield
        finally:
            for layer in own:
                layer.stored = None
            for moved in self.moved:
                moving.remove_plain(self.model, moved)


def find_table_layers(model: nn.Module) -> list[TableLayer]:
    """All layers with tables; a layer without a name of its own gets that of its place in the model."""
    layers = []
    for name, module in model.named_modules():
        if isinstance(module, TableLayer):
            module.table = module.name or name or "embedding"
            layers.append(module)
    return layers


def make_table_specs(layers: Sequence[TableLayer], optimizer: torch.optim.Optimizer) -> list[TableSpec]:
    """The tables of these layers, in their order. Raises ModelError if two different ones have one name."""
    specs: dict[str, TableSpec] = {}
    for layer in layers:
        spec = layer.table_spec(layer.optimizer or optimizer_rules.table_optimizer(optimizer))
        if specs.setdefault(spec.name, spec) != spec:
            raise ModelError(
                f"{layer.label}: expected the same table as the other layer of this name. "
                f"Received: {spec} and {specs[spec.name]}; give it another name"
            )
    return list(specs.values())


class IdOrigin(NamedTuple):
    """A tensor of the features, or some columns of it."""

    path: tuple[Hashable, ...]
    columns: int | slice | None = None

    def read_ids(self, features: Any) -> Ids | None:
        """The ids at this place of other features; None if they have none there."""
        leaf = features
        try:
            for key in self.path:
                leaf = leaf[key]
            part = leaf if self.columns is None else leaf[:, self.columns]
        except (KeyError, IndexError, TypeError):
            return None
        values = part.values() if part.is_nested else part
        return values.reshape(-1).to("cpu", torch.int64).numpy()  # type: ignore[no-any-return]


class TorchIdLookahead:
    """Watches the layers during their first batch, then predicts where in the features their ids are."""

    def __init__(self, layers: Sequence[TableLayer]) -> None:
        self._features: Any = None
        self._origins: list[tuple[str, IdOrigin]] = []
        self._layers = layers
        self._hooks: list[RemovableHandle] = []

    def begin_batch(self, features: Any) -> None:
        """Call it before a batch with these features is computed. Hooks are registered during the first batch only."""
        if self._features is None:
            self._features = features
            self._hooks = [layer.register_forward_pre_hook(self._on_forward) for layer in self._layers]
        elif self._hooks:
            for hook in self._hooks:
                hook.remove()
            self._hooks = []

    def predict_ids(self, features: Any) -> dict[str, list[Ids]]:
        """By table, the ids that a batch with these features will look up, as far as known. Empty while watching."""
        predicted: dict[str, list[Ids]] = {}
        for table, origin in self._origins:
            ids = origin.read_ids(features)
            if ids is not None and not any(np.array_equal(ids, earlier) for earlier in predicted.get(table, ())):
                predicted.setdefault(table, []).append(ids)
        return predicted

    def _on_forward(self, layer: torch.nn.Module, arguments: tuple[Any, ...]) -> None:
        ids = arguments[0][0] if isinstance(arguments[0], tuple) else arguments[0]
        origin = locate_ids(ids, self._features)
        if origin is not None:
            assert isinstance(layer, TableLayer)
            self._origins.append((layer.table, origin))


def locate_ids(ids: Tensor, features: Any) -> IdOrigin | None:
    """Finds these ids in `features`. None: they are a copy, or computed."""
    return next(
        (origin for path, leaf in _iterate_leaves(features, ()) if (origin := _locate_in_leaf(ids, path, leaf))), None
    )


def _locate_in_leaf(ids: Tensor, path: tuple[Hashable, ...], leaf: Tensor) -> IdOrigin | None:
    if ids is leaf:
        return IdOrigin(path)
    if ids.is_nested or leaf.is_nested or ids.dtype != leaf.dtype or not ids.numel():
        return None
    if ids.untyped_storage().data_ptr() != leaf.untyped_storage().data_ptr():
        return None
    distance = int(ids.storage_offset() - leaf.storage_offset())
    if ids.numel() == leaf.numel() and not distance and ids.is_contiguous() and leaf.is_contiguous():
        return IdOrigin(path)
    if leaf.ndim != 2 or ids.shape[0] != leaf.shape[0] or ids.stride(0) != leaf.stride(0) or leaf.stride(1) != 1:
        return None
    if ids.ndim == 1 and 0 <= distance < leaf.shape[1]:
        return IdOrigin(path, distance)
    if ids.ndim == 2 and ids.stride(1) == 1 and 0 <= distance <= leaf.shape[1] - ids.shape[1]:
        return IdOrigin(path, slice(distance, distance + ids.shape[1]))
    return None


def _iterate_leaves(value: Any, path: tuple[Hashable, ...]) -> Iterator[tuple[tuple[Hashable, ...], Tensor]]:
    if isinstance(value, Tensor):
        yield path, value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _iterate_leaves(item, (*path, key))
    elif isinstance(value, tuple | list):
        for index, item in enumerate(value):
            yield from _iterate_leaves(item, (*path, index))
