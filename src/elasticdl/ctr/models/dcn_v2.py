"""DCN-V2: a cross network with whole matrices, under a deep net or beside it (Wang et al., WWW 2021)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor, nn

from elasticdl.ctr.models.layers import Features, FieldEmbeddings, flat_width, flatten_inputs, mlp
from elasticdl.errors import ModelError
from elasticdl.features.layout import FeatureLayout


class CrossNetworkV2(nn.Module):
    """x ← first ∘ (W x + b) + x, layer by layer. With a rank, W = U V, and U has that many columns."""

    def __init__(self, inputs: int, layers: int, rank: int = 0) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            nn.Sequential(nn.Linear(inputs, rank, bias=False), nn.Linear(rank, inputs))
            if rank
            else nn.Linear(inputs, inputs)
            for _ in range(layers)
        )

    def forward(self, first: Tensor) -> Tensor:
        x = first
        for layer in self.layers:
            x = first * layer(x) + x
        return x


class DCNV2(nn.Module):
    def __init__(
        self,
        layout: FeatureLayout,
        *,
        embedding_dim: int = 10,
        layers: int = 2,
        rank: int = 32,
        structure: Literal["parallel", "stacked"] = "parallel",
        hidden_units: Sequence[int] = (128, 64),
        dropout: float = 0.2,
    ) -> None:
        super().__init__()
        if structure not in ("parallel", "stacked"):
            raise ModelError(f"dcn_v2: expected structure as parallel or stacked. Received: {structure!r}")
        self.is_stacked = structure == "stacked"
        self.embeddings = FieldEmbeddings(layout, embedding_dim)
        inputs = flat_width(layout, self.embeddings)
        self.cross = CrossNetworkV2(inputs, layers, rank)
        self.deep = mlp(inputs, hidden_units, dropout)
        self.out = nn.Linear(hidden_units[-1] + (0 if self.is_stacked else inputs), 1)

    def forward(self, features: Features) -> Tensor:
        x = flatten_inputs(self.embeddings(features), features)
        crossed = self.cross(x)
        last = self.deep(crossed) if self.is_stacked else torch.cat([crossed, self.deep(x)], dim=1)
        score: Tensor = self.out(last).squeeze(1)
        return score
