"""A model whose embedding layers have their rows in tables: found, moved, declared, and taken along to an export."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import torch
from torch import nn

from elasticdl.embedding import moving, rule
from elasticdl.embedding.foresight import Foresight
from elasticdl.embedding.layer import Layer
from elasticdl.embedding.moving import Which
from elasticdl.embedding.source import Source
from elasticdl.errors import ModelError
from elasticdl.ps.lookups import Tables
from elasticdl.ps.optimizer import Optimizer
from elasticdl.ps.row_files import gather
from elasticdl.ps.table import TableSpec
from elasticdl.ps.wire import Floats, Ids

_PIECE = 1 << 16  # rows in one request


class Attached:
    """The layers of one model that have tables."""

    def __init__(self, model: nn.Module, which: Which, least_bytes: int) -> None:
        self.model = model
        self._which, self._least_bytes = which, least_bytes
        self.moved, self.notes = moving.move(model, which, least_bytes)
        self.layers = layers_of(model)
        self.specs: list[TableSpec] = []
        self._optimizer: torch.optim.Optimizer | None = None

    def like(self, model: nn.Module) -> Attached:
        """The same of another model of the same kind, without the values it was built with."""
        other = Attached(model, self._which, self._least_bytes)
        other.forget()
        return other

    def leave(self, optimizer: torch.optim.Optimizer) -> None:
        """Take the rule of all tables from this optimizer, which no longer has the weights of moved layers."""
        moving.leave(optimizer, self.moved)
        self._optimizer = optimizer
        if not any(group["params"] for group in optimizer.param_groups):
            raise ModelError("the model: expected a dense layer beside its embeddings. Received: none with parameters")
        self.specs = specs_of(self.layers, optimizer)

    @property
    def rule(self) -> Optimizer:
        """Of the model's optimizer."""
        assert self._optimizer is not None
        return rule.of(self._optimizer)

    def foresight(self) -> Foresight:
        return Foresight(self.layers)

    def attach(self, source: Source) -> None:
        for layer in self.layers:
            layer.attach(source)

    def put(self, tables: Tables) -> None:
        """Let moved layers begin with the values they were built with, whatever their size."""
        for one in self.moved:
            values = one.weight.numpy()
            for start in range(0, len(values), _PIECE):
                rows = values[start : start + _PIECE]
                tables.put(one.layer.table, np.arange(start, start + len(rows)), rows)

    def forget(self) -> None:
        """The values moved layers were built with are on the ps, or will come from a checkpoint."""
        for one in self.moved:
            one.forget()

    @contextmanager
    def whole(self, tables: Tables, rows: Callable[[str], tuple[Ids, Floats]]) -> Iterator[None]:
        """The model with all its rows in it, as plain torch: moved layers are what they were, others hold their ids.

        `rows` gives all ids and rows of a table.
        """
        own = [layer for layer in self.layers if all(layer is not one.layer for one in self.moved)]
        device = next(self.model.parameters()).device
        for one in self.moved:
            (spec,) = [spec for spec in self.specs if spec.name == one.layer.table]
            moving.put_back(self.model, one, torch.from_numpy(gather(tables, spec)).to(device))
        for layer in own:
            layer.store(*rows(layer.table))
            layer.to(device)
        try:
            yield
        finally:
            for layer in own:
                layer.stored = None
            for one in self.moved:
                moving.take_away(self.model, one)


def layers_of(model: nn.Module) -> list[Layer]:
    """All layers with tables; each that was given no name is named by its place."""
    found = []
    for place, module in model.named_modules():
        if isinstance(module, Layer):
            module.table = module.name or place or "embedding"
            found.append(module)
    return found


def specs_of(layers: Sequence[Layer], optimizer: torch.optim.Optimizer) -> list[TableSpec]:
    """The tables of these layers, in their order. Raises ModelError where two mean different ones by one name."""
    specs: dict[str, TableSpec] = {}
    for layer in layers:
        spec = layer.spec(layer.optimizer or rule.of(optimizer))
        if specs.setdefault(spec.name, spec) != spec:
            raise ModelError(
                f"{layer.place}: expected the same table as the other layer of this name. "
                f"Received: {spec} and {specs[spec.name]}; give it another name"
            )
    return list(specs.values())
