"""The rows of a table in a model of its own: what an export holds. Plain torch, so that torch.export takes it."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from elasticdl.ps.initializer import Initializer
from elasticdl.ps.wire import Floats, Ids


class Stored(nn.Module):
    """`rows[i]` is the row of `ids[i]`, which are sorted. An id that is not there has the row `other`."""

    ids: Tensor
    rows: Tensor
    other: Tensor

    def __init__(self, count: int, columns: int) -> None:
        super().__init__()
        self.register_buffer("ids", torch.zeros(count, dtype=torch.int64))
        self.register_buffer("rows", torch.zeros(count, columns))
        self.register_buffer("other", torch.zeros(columns))

    @classmethod
    def of(cls, ids: Ids, rows: Floats, initializer: Initializer) -> Stored:
        """An id nobody trained has what the initializer gives on average."""
        columns = rows.shape[1]
        mean = _mean(initializer)
        if not len(ids):  # a search needs something to search in
            ids, rows = np.zeros(1, np.int64), np.full((1, columns), mean, np.float32)
        order = np.argsort(ids, kind="stable")
        built = cls(len(ids), columns)
        built.ids.copy_(torch.from_numpy(ids[order]))
        built.rows.copy_(torch.from_numpy(rows[order]))
        built.other.fill_(mean)
        return built

    def forward(self, ids: Tensor) -> Tensor:
        """For ids in one dimension."""
        places = torch.searchsorted(self.ids, ids).clamp(max=self.ids.shape[0] - 1)
        is_known = (self.ids[places] == ids).unsqueeze(1)
        return torch.where(is_known, self.rows[places], self.other)


def _mean(initializer: Initializer) -> float:
    match initializer.kind:
        case "constant":
            return initializer.value
        case "uniform":
            return (initializer.low + initializer.high) / 2
        case "normal" | "truncated_normal":
            return initializer.mean
        case _:
            return 0.0
