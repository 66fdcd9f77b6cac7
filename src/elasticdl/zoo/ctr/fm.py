"""Factorization machine: first-order weights, and products of factors in pairs (Rendle, ICDM 2010)."""

from __future__ import annotations

from torch import Tensor, nn

from elasticdl.features.layout import Layout
from elasticdl.zoo.ctr.inputs import Embeddings, Features, FirstOrder, pairs


class FM(nn.Module):
    def __init__(self, layout: Layout, *, columns: int = 10) -> None:
        super().__init__()
        self.linear = FirstOrder(layout)
        self.factors = Embeddings(layout, columns)

    def forward(self, features: Features) -> Tensor:
        score: Tensor = self.linear(features) + pairs(self.factors(features)).sum(dim=1)
        return score
