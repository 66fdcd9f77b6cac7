"""Restores the rows of an export or a checkpoint into a model that has no ps."""

from __future__ import annotations

from collections.abc import Callable, Collection
from pathlib import Path

import numpy as np
import torch
from torch import nn

from elasticdl.checkpoint.captured_state import MODEL_PREFIX, CapturedState
from elasticdl.checkpoint.store import ROWS_PREFIX
from elasticdl.model.embeddings.attach import find_table_layers
from elasticdl.model.embeddings.layers import StoredRows
from elasticdl.model.embeddings.row_sources import FileRows
from elasticdl.ps.snapshots import exported_tables, snapshot_files
from elasticdl.ps.snapshots.exported_tables import ExportedTables
from elasticdl.ps.wire.messages import Floats, Ids


def read_table_rows(checkpoint: Path, table: str) -> tuple[Ids, Floats]:
    """All rows of a table in a checkpoint, each id once."""
    pieces = list(snapshot_files.read_rows(checkpoint, table))
    if not pieces:
        columns = next(spec.columns for spec in snapshot_files.count_rows_by_table(checkpoint) if spec.name == table)
        return np.empty(0, np.int64), np.empty((0, columns), np.float32)
    ids, rows = np.concatenate([ids for ids, _ in pieces]), np.concatenate([rows for _, rows in pieces])
    distinct, last = np.unique(ids[::-1], return_index=True)  # if an id comes twice, the later row counts
    return distinct, rows[::-1][last]


def restore_rows(model: nn.Module, captured: CapturedState, directory: Path) -> CapturedState:
    """Let layers hold the rows of the export or checkpoint in `directory`.

    Returns the captured state with the weights of plain layers that were on ps.
    """
    layers = find_table_layers(model)
    if (directory / exported_tables.INDEX_FILE).exists():
        files = ExportedTables.open(directory)
        for layer in layers:
            layer.attach_source(FileRows(files))
        restored = _restore_plain_weights(
            model, files.tables, lambda table, count: files.lookup(table, np.arange(count))
        )  # fmt: skip
    elif (directory / ROWS_PREFIX).exists():
        for layer in layers:
            layer.store_rows(*read_table_rows(directory, layer.table))
        restored = {name: tensor for name, tensor in model.state_dict().items() if ".stored." in name}
        tables = {spec.name for spec in snapshot_files.count_rows_by_table(directory)}
        restored |= _restore_plain_weights(
            model, tables, lambda table, count: _to_dense(*read_table_rows(directory, table), count)
        )
    else:
        weights, restored = captured.weights(), {}
        for name, module in model.named_modules(remove_duplicate=False):
            rows = weights.get(f"{name}.stored.rows")
            if rows is not None and any(module is layer for layer in layers):
                module.stored = StoredRows(*rows.shape)
    tensors = captured.tensors | {MODEL_PREFIX + name: tensor for name, tensor in restored.items()}
    return CapturedState(captured.step, captured.records, tensors, captured.meta)


def _restore_plain_weights(
    model: nn.Module, tables: Collection[str], rows: Callable[[str, int], Floats]
) -> dict[str, torch.Tensor]:
    """The weights of plain layers that were on ps, under all their names; a table has the first name."""
    weights: dict[str, torch.Tensor] = {}
    for name, module in model.named_modules():
        if isinstance(module, nn.Embedding | nn.EmbeddingBag) and name in tables:
            weight = torch.from_numpy(rows(name, module.num_embeddings))
            names = [alias for alias, same in model.named_modules(remove_duplicate=False) if same is module]
            weights |= {f"{alias}.weight": weight for alias in names}
    return weights


def _to_dense(ids: Ids, rows: Floats, count: int) -> Floats:
    dense = np.zeros((count, rows.shape[1]), np.float32)
    dense[ids] = rows
    return dense
