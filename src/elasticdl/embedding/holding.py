"""Rows of an export or of a checkpoint in a model that has no ps."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch import nn

from elasticdl.checkpoint.image import MODEL, Image
from elasticdl.checkpoint.store import ROWS
from elasticdl.embedding.attached import layers_of
from elasticdl.embedding.stored import Stored
from elasticdl.ps import cuts
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
    """Let layers hold the rows that the image has for them, or the checkpoint in `place`.

    Returns the image with the weights of plain layers that were on ps.
    """
    layers = layers_of(model)
    if not (place / ROWS).exists():
        weights = image.weights()
        for name, module in model.named_modules(remove_duplicate=False):
            kept = weights.get(f"{name}.stored.rows")
            if kept is not None and any(module is layer for layer in layers):
                module.stored = Stored(*kept.shape)
        return image
    known = {spec.name for spec in cuts.tables(place)}
    found: dict[str, torch.Tensor] = {}
    for layer in layers:
        layer.store(*rows_of(place, layer.table))
    for name, module in model.named_modules():
        if isinstance(module, nn.Embedding | nn.EmbeddingBag) and name in known:
            ids, rows = rows_of(place, name)
            weight = torch.zeros(module.weight.shape)
            weight[torch.from_numpy(ids)] = torch.from_numpy(rows)
            found |= {f"{MODEL}{other}.weight": weight for other in _places(model, module)}
    for other, value in model.state_dict().items():
        if ".stored." in other:
            found[MODEL + other] = value
    return Image(image.step, image.records, image.tensors | found, image.meta)


def _places(model: nn.Module, module: nn.Module) -> list[str]:
    return [name for name, other in model.named_modules(remove_duplicate=False) if other is module]
