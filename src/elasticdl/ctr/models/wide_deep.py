"""Wide & Deep: a linear model over ids beside a deep net over their embeddings (Cheng et al., DLRS 2016)."""

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
)
from elasticdl.features.layout import FeatureLayout


class WideDeep(nn.Module):
    def __init__(
        self,
        layout: FeatureLayout,
        *,
        embedding_dim: int = 10,
        hidden_units: Sequence[int] = (128, 64),
        dropout: float = 0.2,
    ) -> None:
        super().__init__()
        self.wide = FirstOrderTerm(layout)
        self.embeddings = FieldEmbeddings(layout, embedding_dim)
        self.deep = DeepNetwork(flat_width(layout, self.embeddings), hidden_units, dropout)

    def forward(self, features: Features) -> Tensor:
        score: Tensor = self.wide(features) + self.deep(flatten_inputs(self.embeddings(features), features))
        return score
