"""Rows of a table in the graph of autograd: gathered forward, summed by id backward."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from elasticdl.embedding.source import Source
from elasticdl.ps.lookups import Found


class Gather(torch.autograd.Function):
    """`anchor` is empty. It requires a gradient, so that there is a backward pass, and has the device of the rows."""

    @staticmethod
    def forward(ctx: Any, anchor: Tensor, source: Source, table: str, found: Found) -> Tensor:
        ctx.source, ctx.table, ctx.found = source, table, found
        rows = torch.from_numpy(found.rows)
        gathered = rows.index_select(0, torch.from_numpy(found.plan.inverse))
        return gathered.to(anchor.device)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[None, None, None, None]:
        sums = ctx.found.plan.gradients(gradient.to("cpu", torch.float32).contiguous().numpy())
        ctx.source.give(ctx.table, ctx.found, sums)
        return None, None, None, None
