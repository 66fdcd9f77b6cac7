"""Deep & Cross: a cross network beside a deep net (Wang et al., ADKDD 2017)."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from elasticdl.features.layout import Layout
from elasticdl.zoo.ctr.inputs import Embeddings, Features, flat, mlp, width


class Cross(nn.Module):
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
        layout: Layout,
        *,
        columns: int = 10,
        layers: int = 2,
        hidden: Sequence[int] = (128, 64),
        dropout: float = 0.2,
    ) -> None:
        super().__init__()
        self.embeddings = Embeddings(layout, columns)
        inputs = width(layout, self.embeddings)
        self.cross = Cross(inputs, layers)
        self.deep = mlp(inputs, hidden, dropout)
        self.out = nn.Linear(inputs + hidden[-1], 1)

    def forward(self, features: Features) -> Tensor:
        x = flat(self.embeddings(features), features)
        score: Tensor = self.out(torch.cat([self.cross(x), self.deep(x)], dim=1)).squeeze(1)
        return score
