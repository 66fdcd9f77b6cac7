"""DLRM: numbers become one more vector, and a net takes the dot products of all pairs (Naumov et al., 2019)."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from elasticdl.ctr.models.layers import DeepNetwork, Features, FieldEmbeddings, mlp
from elasticdl.features.layout import FeatureLayout


class DLRM(nn.Module):
    def __init__(
        self,
        layout: FeatureLayout,
        *,
        embedding_dim: int = 10,
        bottom: Sequence[int] = (64,),
        hidden_units: Sequence[int] = (128, 64),
        dropout: float = 0.2,
    ) -> None:
        super().__init__()
        self.embeddings = FieldEmbeddings(layout, embedding_dim, deviation=0.05)
        numbers = len(layout.numbers)
        self.bottom = mlp(numbers, (*bottom, embedding_dim)) if numbers else None
        vectors = self.embeddings.count + (self.bottom is not None)
        self.register_buffer("pairs", torch.triu_indices(vectors, vectors, offset=1), persistent=False)
        self.top = DeepNetwork(vectors * (vectors - 1) // 2 + (embedding_dim if numbers else 0), hidden_units, dropout)

    def forward(self, features: Features) -> Tensor:
        vectors = self.embeddings(features)
        dense = [] if self.bottom is None else [self.bottom(features["numbers"])]
        vectors = torch.cat([*(vector.unsqueeze(1) for vector in dense), vectors], dim=1)
        first, second = self.get_buffer("pairs")
        products = (vectors @ vectors.transpose(1, 2))[:, first, second]
        score: Tensor = self.top(torch.cat([*dense, products], dim=1))
        return score
