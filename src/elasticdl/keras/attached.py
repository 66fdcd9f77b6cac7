"""A Keras model whose embedding layers have their rows on ps: declared, attached, and put together for an export."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from elasticdl.checkpoint.image import MODEL, Image
from elasticdl.errors import ModelError
from elasticdl.keras import rule
from elasticdl.keras.embedding import Embedding
from elasticdl.keras.pulls import Floats, Ids
from elasticdl.keras.values import to_torch
from elasticdl.ps.optimizer import Optimizer

if TYPE_CHECKING:
    from torch import nn

    from elasticdl.embedding.source import Source
    from elasticdl.keras.module import KerasModule
    from elasticdl.ps.lookups import Tables
    from elasticdl.ps.table import TableSpec


class KerasAttached:
    """The layers of one model that have tables."""

    def __init__(self, module: KerasModule, optimizer: Any) -> None:
        """Their tables are updated by the rule of `optimizer`, a Keras one."""
        self._module = module
        self._optimizer = optimizer
        self.specs = [spec_of(name, layer, self.rule) for name, layer in module.on_ps.items()]

    @property
    def rule(self) -> Optimizer:
        return rule.of(self._optimizer)

    def foresight(self) -> KerasForesight:
        return KerasForesight(self._module)

    def like(self, model: nn.Module) -> KerasAttached:
        """The same of another model of the same kind."""
        from elasticdl.keras.module import KerasModule

        assert isinstance(model, KerasModule)
        return KerasAttached(model, self._optimizer)

    def attach(self, source: Source) -> None:
        self._module.computation.use(source)

    def put(self, tables: Tables) -> None:
        """Rows begin as their initializers say: there is nothing to put."""

    def forget(self) -> None:
        """Nothing is held."""

    @contextmanager
    def whole(self, tables: Tables, rows: Callable[[str], tuple[Ids, Floats]]) -> Iterator[None]:
        """While the model is exported: where its rows are to be had."""
        from elasticdl.ps.row_files import gather

        specs = {spec.name: spec for spec in self.specs}

        def found(table: str) -> tuple[Ids, Floats]:
            count = specs[table].rows
            return rows(table) if count is None else (np.arange(count), gather(tables, specs[table]))

        self._module.rows = found
        try:
            yield
        finally:
            self._module.rows = None


class KerasForesight:
    """What a batch will ask for is known once the model is traced."""

    def __init__(self, module: KerasModule) -> None:
        self._pulls = module.computation.training_pulls

    def begin(self, features: Any) -> None:
        """Nothing has to be watched."""

    def ids(self, features: Any) -> dict[str, list[Ids]]:
        return self._pulls.foreseen(features)


def spec_of(table: str, layer: Embedding, optimizer: Optimizer) -> TableSpec:
    from elasticdl.ps.table import TableSpec  # needs the native core

    first = rule.initial(layer.embeddings_initializer)
    if first is None:
        raise ModelError(
            f"{table}: expected an initializer that the ps know. "
            f"Received: {type(layer.embeddings_initializer).__name__}; use RandomUniform, RandomNormal or Zeros"
        )
    return TableSpec(name=table, columns=layer.output_dim, rows=layer.input_dim, initializer=first, optimizer=optimizer)


def fill(whole: KerasModule, module: KerasModule) -> None:
    """Let `whole`, built with all its rows in it, have the values of `module` and of its tables."""
    tables = module.on_ps
    assert module.rows is not None
    own = {id(whole.embeddings[name].embeddings) for name in tables}
    dense = [variable for variable in whole.keras.weights if id(variable) not in own]
    module.settle()
    for variable, value in zip(dense, module.keras.weights, strict=True):
        variable.assign(value)
    for name in tables:
        ids, rows = module.rows(name)
        layer = whole.embeddings[name]
        if isinstance(layer, Embedding) and layer.takes_any:
            layer.hold(ids, rows)
        else:
            layer.embeddings.assign(rows)
    for name, variable in whole.computation.variables.statistics.items():
        whole.get_buffer(name).copy_(to_torch(variable))


def hold_rows(module: KerasModule, image: Image, place: Path) -> Image:
    """The image of an export or a checkpoint in `place` with the rows of its tables, for a model that has no ps."""
    from elasticdl.embedding.holding import rows_of  # needs the native core
    from elasticdl.embedding.source import Filed
    from elasticdl.ps import cuts, row_files

    files = row_files.RowFiles(place) if (place / row_files.INDEX).exists() else None
    known = set(files.tables) if files is not None else {spec.name for spec in cuts.tables(place)}
    names = {id(variable): name for name, variable in module.computation.variables.trained.items()}
    found: dict[str, torch.Tensor] = {}
    for table, layer in module.embeddings.items():
        if table not in known:
            continue
        takes_any = isinstance(layer, Embedding) and layer.takes_any
        if files is not None and takes_any:
            layer.is_on_ps = True  # its rows are looked up, if not there
            module.computation.use(Filed(files))
            continue
        ids = np.arange(0 if takes_any else layer.input_dim)
        ids, rows = rows_of(place, table) if files is None else (ids, files.lookup(table, ids))
        if takes_any:
            found |= {f"{MODEL}{table}/ids": torch.from_numpy(ids), f"{MODEL}{table}/rows": torch.from_numpy(rows)}
        else:
            weight = to_torch(layer.embeddings)
            weight[torch.from_numpy(ids)] = torch.from_numpy(rows)
            found[MODEL + names[id(layer.embeddings)]] = weight
    return Image(image.step, image.records, image.tensors | found, image.meta)
