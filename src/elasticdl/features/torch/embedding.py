"""One vector for all ids of a row, with weights of the module's own."""

from __future__ import annotations

from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn

from elasticdl.features.torch import structure
from elasticdl.features.transforms.transformation import expect_bins

Combiner = Literal["sum", "mean", "sqrtn"]


class SparseEmbedding(nn.Module):
    """One vector for all ids of a row: their sum, mean, or sum over the root of their number.

    Ids below zero are left out, and 0 among dense ones; a row without ids has zeros. As TensorFlow's
    `safe_embedding_lookup_sparse`, and as `elasticdl.features.keras.SparseEmbedding`. Ids are dense [rows, ids],
    jagged, sparse (COO), or a pair (values, splits). For rows on ps use `elasticdl.torch.EmbeddingBag`.
    """

    def __init__(self, input_dim: int, output_dim: int, combiner: Combiner = "mean") -> None:
        super().__init__()
        expect_bins("SparseEmbedding", "input_dim", input_dim)
        expect_bins("SparseEmbedding", "output_dim", output_dim)
        if combiner not in get_args(Combiner):
            raise ValueError(f"SparseEmbedding: expected a combiner of sum, mean, sqrtn. Received: {combiner!r}")
        self.combiner = combiner
        self.weight = nn.Parameter(torch.empty(input_dim, output_dim))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Uniform between -0.05 and 0.05, as Keras begins."""
        nn.init.uniform_(self.weight, -0.05, 0.05)

    def forward(self, ids: Any) -> Tensor:
        is_dense = isinstance(ids, Tensor) and not ids.is_nested and ids.layout == torch.strided
        rows = structure.rows_of(ids)
        keep = rows.values > 0 if is_dense else rows.values >= 0
        # Those left out have weight 0, so that the shapes do not depend on the values.
        count = rows.splits.shape[0] - 1
        weights = keep.to(self.weight.dtype)
        row = torch.searchsorted(rows.splits, torch.arange(len(rows.values), device=keep.device), right=True) - 1
        vectors = self.weight[torch.where(keep, rows.values, 0)] * weights[:, None]
        sums: Tensor = vectors.new_zeros(count, self.weight.shape[1]).index_add(0, row, vectors)
        if self.combiner == "sum":
            return sums
        numbers = weights.new_zeros(count).index_add(0, row, weights).clamp(min=1)[:, None]
        combined: Tensor = sums / (numbers if self.combiner == "mean" else numbers.sqrt())
        return combined

    def extra_repr(self) -> str:
        return f"{self.weight.shape[0]}, {self.weight.shape[1]}, combiner={self.combiner!r}"
