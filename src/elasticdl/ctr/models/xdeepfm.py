"""xDeepFM: a compressed interaction network, a linear model and a deep net side by side (Lian et al., KDD 2018)."""

from __future__ import annotations

from collections.abc import Sequence

import torch
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


class CIN(nn.Module):
    """Products of fields, of one order more in each layer: [rows, fields, embedding_dim] to [rows, sum of sizes].

    Map h of layer k is the sum over i, j of W[k, h, i, j] · (map i of layer k - 1) ∘ (field j).
    """

    def __init__(self, fields: int, sizes: Sequence[int]) -> None:
        super().__init__()
        before = [fields, *sizes[:-1]]
        self.layers = nn.ModuleList(
            nn.Conv1d(maps * fields, size, kernel_size=1) for maps, size in zip(before, sizes, strict=True)
        )

    def forward(self, fields: Tensor) -> Tensor:
        sums, maps = [], fields
        for layer in self.layers:
            products = torch.einsum("bid,bjd->bijd", maps, fields).flatten(1, 2)
            maps = torch.relu(layer(products))
            sums.append(maps.sum(dim=2))
        return torch.cat(sums, dim=1)


class XDeepFM(nn.Module):
    def __init__(
        self,
        layout: FeatureLayout,
        *,
        embedding_dim: int = 10,
        cin_layers: Sequence[int] = (16, 16),
        hidden_units: Sequence[int] = (128, 64),
        dropout: float = 0.2,
    ) -> None:
        super().__init__()
        self.linear = FirstOrderTerm(layout)
        self.embeddings = FieldEmbeddings(layout, embedding_dim)
        self.cin = CIN(self.embeddings.count, cin_layers)
        self.crossed = nn.Linear(sum(cin_layers), 1, bias=False)
        self.deep = DeepNetwork(flat_width(layout, self.embeddings), hidden_units, dropout)

    def forward(self, features: Features) -> Tensor:
        embeddings = self.embeddings(features)
        crossed = self.crossed(self.cin(embeddings)).squeeze(1)
        score: Tensor = self.linear(features) + crossed + self.deep(flatten_inputs(embeddings, features))
        return score
