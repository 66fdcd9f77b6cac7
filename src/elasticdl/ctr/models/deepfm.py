"""DeepFM: a factorization machine and a deep net over the same factors (Guo et al., IJCAI 2017)."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

from elasticdl.ctr.models.layers import (
    DeepNetwork,
    Features,
    FieldEmbeddings,
    FirstOrderTerm,
    flat_width,
    flatten_inputs,
    pairwise_products,
)
from elasticdl.features.layout import FeatureLayout


class DeepFM(nn.Module):
    def __init__(
        self,
        layout: FeatureLayout,
        *,
        embedding_dim: int = 10,
        hidden_units: Sequence[int] = (128, 64),
        dropout: float = 0.2,
    ) -> None:
        super().__init__()
        self.linear = FirstOrderTerm(layout)
        self.factors = FieldEmbeddings(layout, embedding_dim)
        self.deep = DeepNetwork(flat_width(layout, self.factors), hidden_units, dropout)

    def forward(self, features: Features) -> Tensor:
        factors = self.factors(features)
        machine = self.linear(features) + pairwise_products(factors).sum(dim=1)
        score: Tensor = machine + self.deep(flatten_inputs(factors, features))
        return score
