"""Rows of an export or of a checkpoint in a model that has no ps."""

from __future__ import annotations

from collections.abc import Callable, Collection
from pathlib import Path

import numpy as np
import torch
from torch import nn

from elasticdl.checkpoint.image import MODEL, Image
from elasticdl.checkpoint.store import ROWS
from elasticdl.embedding.attached import layers_of
from elasticdl.embedding.source import Filed
from elasticdl.embedding.stored import Stored
from elasticdl.ps import cuts, row_files
from elasticdl.ps.row_files import RowFiles
from elasticdl.ps.wire import Floats, Ids


def rows_of(checkpoint: Path, table: str) -> tuple[Ids, Floats]:
    """All rows of a table in a checkpoint, each id once."""
    pieces = list(cuts.rows(checkpoint, table))
    if not pieces:
        columns = next(spec.columns for spec in cuts.tables(checkpoint) if spec.name == table)
        return np.empty(0, np.int64), np.empty((0, columns), np.float32)
    ids, rows = np.concatenate([ids for ids, _ in pieces]), np.concatenate([rows for _, rows in pieces])
    distinct, last = np.unique(ids[::-1], return_index=True)  # of an id that comes again the later row counts
    return distinct, rows[::-1][last]


def hold_rows(model: nn.Module, image: Image, place: Path) -> Image:
    """Let layers have the rows of an export, or of a checkpoint, in the directory `place`.

    Returns the image with the weights of plain layers that were on ps.
    """
    layers = layers_of(model)
    if (place / row_files.INDEX).exists():
        files = RowFiles(place)
        for layer in layers:
            layer.attach(Filed(files))
        found = _plain_weights(
            model, files.tables, lambda table, count: files.lookup(table, np.arange(count))
        )  # fmt: skip
    elif (place / ROWS).exists():
        for layer in layers:
            layer.store(*rows_of(place, layer.table))
        found = {name: tensor for name, tensor in model.state_dict().items() if ".stored." in name}
        known = {spec.name for spec in cuts.tables(place)}
        found |= _plain_weights(model, known, lambda table, count: _dense(*rows_of(place, table), count))
    else:
        weights, found = image.weights(), {}
        for name, module in model.named_modules(remove_duplicate=False):
            kept = weights.get(f"{name}.stored.rows")
            if kept is not None and any(module is layer for layer in layers):
                module.stored = Stored(*kept.shape)
    tensors = image.tensors | {MODEL + name: tensor for name, tensor in found.items()}
    return Image(image.step, image.records, tensors, image.meta)


def _plain_weights(
    model: nn.Module, known: Collection[str], rows: Callable[[str, int], Floats]
) -> dict[str, torch.Tensor]:
    """Of plain layers that were on ps, in all their places; a table has the name of the first."""
    found: dict[str, torch.Tensor] = {}
    for name, module in model.named_modules():
        if isinstance(module, nn.Embedding | nn.EmbeddingBag) and name in known:
            weight = torch.from_numpy(rows(name, module.num_embeddings))
            places = [other for other, same in model.named_modules(remove_duplicate=False) if same is module]
            found |= {f"{place}.weight": weight for place in places}
    return found


def _dense(ids: Ids, rows: Floats, count: int) -> Floats:
    whole = np.zeros((count, rows.shape[1]), np.float32)
    whole[ids] = rows
    return whole
