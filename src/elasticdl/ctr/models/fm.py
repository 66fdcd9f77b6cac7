"""Factorization machine: first-order weights, and products of factors in pairs (Rendle, ICDM 2010)."""

from __future__ import annotations

from torch import Tensor, nn

from elasticdl.ctr.models.layers import Features, FieldEmbeddings, FirstOrderTerm, pairwise_products
from elasticdl.features.layout import FeatureLayout


class FM(nn.Module):
    def __init__(self, layout: FeatureLayout, *, embedding_dim: int = 10) -> None:
        super().__init__()
        self.linear = FirstOrderTerm(layout)
        self.factors = FieldEmbeddings(layout, embedding_dim)

    def forward(self, features: Features) -> Tensor:
        score: Tensor = self.linear(features) + pairwise_products(self.factors(features)).sum(dim=1)
        return score
