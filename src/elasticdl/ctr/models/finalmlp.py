"""FinalMLP: two deep nets, each with gated features, joined by a bilinear form (Mao et al., AAAI 2023)."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from elasticdl.ctr.models.layers import Features, FieldEmbeddings, flat_width, flatten_inputs, mlp
from elasticdl.errors import ModelError
from elasticdl.features.layout import FeatureLayout


class FeatureGate(nn.Module):
    """Multiplies each input by a number from 0 to 2 that depends on all of them."""

    def __init__(self, inputs: int, size: int) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(inputs, size), nn.ReLU(), nn.Linear(size, inputs), nn.Sigmoid())

    def forward(self, x: Tensor) -> Tensor:
        gated: Tensor = 2.0 * x * self.net(x)
        return gated


class BilinearFusion(nn.Module):
    """b + u · first + v · second + the sum over heads of first W second, each head with its part of both."""

    def __init__(self, first: int, second: int, heads: int) -> None:
        super().__init__()
        if first % heads or second % heads:
            raise ModelError(f"finalmlp: expected the last sizes, {first} and {second}, as multiples of heads={heads}")
        self.heads = heads
        self.first, self.second = nn.Linear(first, 1), nn.Linear(second, 1, bias=False)
        self.products = nn.Parameter(torch.randn(heads, first // heads, second // heads) * 0.01)

    def forward(self, first: Tensor, second: Tensor) -> Tensor:
        a, b = (x.reshape(len(x), self.heads, -1) for x in (first, second))
        joined = torch.einsum("bhi,hij,bhj->b", a, self.products, b)
        score: Tensor = self.first(first).squeeze(1) + self.second(second).squeeze(1) + joined
        return score


class FinalMLP(nn.Module):
    def __init__(
        self,
        layout: FeatureLayout,
        *,
        embedding_dim: int = 10,
        first: Sequence[int] = (128, 64),
        second: Sequence[int] = (128, 64),
        gate: int = 64,
        heads: int = 2,
        dropout: float = 0.2,
    ) -> None:
        super().__init__()
        self.embeddings = FieldEmbeddings(layout, embedding_dim)
        inputs = flat_width(layout, self.embeddings)
        self.first = nn.Sequential(FeatureGate(inputs, gate), *mlp(inputs, first, dropout))
        self.second = nn.Sequential(FeatureGate(inputs, gate), *mlp(inputs, second, dropout))
        self.fusion = BilinearFusion(first[-1], second[-1], heads)

    def forward(self, features: Features) -> Tensor:
        x = flatten_inputs(self.embeddings(features), features)
        score: Tensor = self.fusion(self.first(x), self.second(x))
        return score
