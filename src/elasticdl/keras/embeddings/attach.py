"""Attaches a Keras model's embedding layers to tables on ps, and restores their rows for an export."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from elasticdl.checkpoint.captured_state import MODEL_PREFIX, CapturedState
from elasticdl.errors import ModelError
from elasticdl.keras.adapter.tensors import to_torch
from elasticdl.keras.embeddings import optimizer_rules
from elasticdl.keras.embeddings.layers import Embedding
from elasticdl.keras.embeddings.row_pulls import Floats, Ids
from elasticdl.ps.tables.optimizer import Optimizer

if TYPE_CHECKING:
    from torch import nn

    from elasticdl.keras.adapter.module import KerasModule
    from elasticdl.model.embeddings.row_sources import RowSource
    from elasticdl.ps.client.lookups import TableClient
    from elasticdl.ps.tables.table import TableSpec


class KerasEmbeddingLayers:
    """The layers of one Keras model that have tables; see `EmbeddingLayers`."""

    def __init__(self, module: KerasModule, optimizer: Any) -> None:
        """The rule of `optimizer`, a Keras optimizer, updates their tables."""
        self._module = module
        self._optimizer = optimizer
        self.table_specs = [
            make_table_spec(name, layer, self.optimizer_rule) for name, layer in module.ps_layers.items()
        ]

    @property
    def optimizer_rule(self) -> Optimizer:
        return optimizer_rules.table_optimizer(self._optimizer)

    def lookahead(self) -> KerasIdLookahead:
        return KerasIdLookahead(self._module)

    def for_model(self, model: nn.Module) -> KerasEmbeddingLayers:
        """The layers of another model of the same kind."""
        from elasticdl.keras.adapter.module import KerasModule

        assert isinstance(model, KerasModule)
        return KerasEmbeddingLayers(model, self._optimizer)

    def attach_source(self, source: RowSource) -> None:
        self._module.computation.use_source(source)

    def put_initial_rows(self, tables: TableClient) -> None:
        """Does nothing: initializers set the first values of rows."""

    def drop_initial_rows(self) -> None:
        """Does nothing: no rows are held."""

    @contextmanager
    def full_model(self, tables: TableClient, rows: Callable[[str], tuple[Ids, Floats]]) -> Iterator[None]:
        """Context in which the module finds its rows for an export."""
        from elasticdl.ps.snapshots.exported_tables import pull_whole_table

        table_specs = {spec.name: spec for spec in self.table_specs}

        def read_rows(table: str) -> tuple[Ids, Floats]:
            count = table_specs[table].rows
            return rows(table) if count is None else (np.arange(count), pull_whole_table(tables, table_specs[table]))

        self._module.rows = read_rows
        try:
            yield
        finally:
            self._module.rows = None


class KerasIdLookahead:
    """Predicts the ids of a batch, which are known once the model is traced."""

    def __init__(self, module: KerasModule) -> None:
        self._pulls = module.computation.training_pulls

    def begin_batch(self, features: Any) -> None:
        """Does nothing: the trace shows where ids come from."""

    def predict_ids(self, features: Any) -> dict[str, list[Ids]]:
        return self._pulls.predict_ids(features)


def make_table_spec(table: str, layer: Embedding, optimizer: Optimizer) -> TableSpec:
    from elasticdl.ps.tables.table import TableSpec  # needs the native core

    first = optimizer_rules.table_initializer(layer.embeddings_initializer)
    if first is None:
        raise ModelError(
            f"{table}: expected an initializer that the ps know. "
            f"Received: {type(layer.embeddings_initializer).__name__}; use RandomUniform, RandomNormal or Zeros"
        )
    return TableSpec(name=table, columns=layer.output_dim, rows=layer.input_dim, initializer=first, optimizer=optimizer)


def copy_values(full_module: KerasModule, module: KerasModule) -> None:
    """Copy the values of `module` and of its tables into `full_module`, which was built with all rows in it."""
    tables = module.ps_layers
    assert module.rows is not None
    own = {id(full_module.embeddings[name].embeddings) for name in tables}
    dense = [variable for variable in full_module.keras.weights if id(variable) not in own]
    module.write_statistics()
    for variable, value in zip(dense, module.keras.weights, strict=True):
        variable.assign(value)
    for name in tables:
        ids, rows = module.rows(name)
        layer = full_module.embeddings[name]
        if isinstance(layer, Embedding) and layer.takes_any_id:
            layer.hold_rows(ids, rows)
        else:
            layer.embeddings.assign(rows)
    for name, variable in full_module.computation.variables.statistics.items():
        full_module.get_buffer(name).copy_(to_torch(variable))


def restore_rows(module: KerasModule, captured: CapturedState, directory: Path) -> CapturedState:
    """The state of the export or checkpoint in `directory` with the rows of its tables, for a model without ps."""
    from elasticdl.model.embeddings.restore import read_table_rows  # needs the native core
    from elasticdl.model.embeddings.row_sources import FileRows
    from elasticdl.ps.snapshots import exported_tables, snapshot_files

    files = (
        exported_tables.ExportedTables.open(directory) if (directory / exported_tables.INDEX_FILE).exists() else None
    )
    stored_tables = (
        set(files.tables)
        if files is not None
        else {spec.name for spec in snapshot_files.count_rows_by_table(directory)}
    )
    names = {id(variable): name for name, variable in module.computation.variables.trained.items()}
    restored: dict[str, torch.Tensor] = {}
    for table, layer in module.embeddings.items():
        if table not in stored_tables:
            continue
        takes_any = isinstance(layer, Embedding) and layer.takes_any_id
        if files is not None and takes_any:
            layer.is_on_ps = True  # its rows are looked up in files
            module.computation.use_source(FileRows(files))
            continue
        ids = np.arange(0 if takes_any else layer.input_dim)
        ids, rows = read_table_rows(directory, table) if files is None else (ids, files.lookup(table, ids))
        if takes_any:
            restored |= {
                f"{MODEL_PREFIX}{table}/ids": torch.from_numpy(ids),
                f"{MODEL_PREFIX}{table}/rows": torch.from_numpy(rows),
            }
        else:
            weight = to_torch(layer.embeddings)
            weight[torch.from_numpy(ids)] = torch.from_numpy(rows)
            restored[MODEL_PREFIX + names[id(layer.embeddings)]] = weight
    return CapturedState(captured.step, captured.records, captured.tensors | restored, captured.meta)
