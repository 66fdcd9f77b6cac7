"""Deep & Cross: a cross network beside a deep net (Wang et al., ADKDD 2017)."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from elasticdl.ctr.models.layers import Features, FieldEmbeddings, flat_width, flatten_inputs, mlp
from elasticdl.features.layout import FeatureLayout


class CrossNetwork(nn.Module):
    """x ← first · (x · w) + b + x, layer by layer: products of one order more in each."""

    def __init__(self, inputs: int, layers: int) -> None:
        super().__init__()
        self.weights = nn.ParameterList(nn.Parameter(torch.randn(inputs) / inputs**0.5) for _ in range(layers))
        self.biases = nn.ParameterList(nn.Parameter(torch.zeros(inputs)) for _ in range(layers))

    def forward(self, first: Tensor) -> Tensor:
        x = first
        for weight, bias in zip(self.weights, self.biases, strict=True):
            x = first * (x @ weight).unsqueeze(1) + bias + x
        return x


class DCN(nn.Module):
    def __init__(
        self,
        layout: FeatureLayout,
        *,
        embedding_dim: int = 10,
        layers: int = 2,
        hidden_units: Sequence[int] = (128, 64),
        dropout: float = 0.2,
    ) -> None:
        super().__init__()
        self.embeddings = FieldEmbeddings(layout, embedding_dim)
        inputs = flat_width(layout, self.embeddings)
        self.cross = CrossNetwork(inputs, layers)
        self.deep = mlp(inputs, hidden_units, dropout)
        self.out = nn.Linear(inputs + hidden_units[-1], 1)

    def forward(self, features: Features) -> Tensor:
        x = flatten_inputs(self.embeddings(features), features)
        score: Tensor = self.out(torch.cat([self.cross(x), self.deep(x)], dim=1)).squeeze(1)
        return score
