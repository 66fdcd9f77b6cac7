"""AutoInt: fields attend to each other, beside a deep net (Song et al., CIKM 2019; with the net it is AutoInt+)."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from elasticdl.ctr.models.layers import DeepNetwork, Features, FieldEmbeddings, flat_width, flatten_inputs
from elasticdl.features.layout import FeatureLayout


class InteractingLayer(nn.Module):
    """Self-attention over fields with a residual: [rows, fields, inputs] to [rows, fields, heads · size]."""

    def __init__(self, inputs: int, size: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.projections = nn.Linear(inputs, 3 * heads * size, bias=False)
        self.residual = nn.Linear(inputs, heads * size, bias=False)

    def forward(self, fields: Tensor) -> Tensor:
        rows, count, _ = fields.shape
        query, key, value = self.projections(fields).view(rows, count, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        # The paper does not divide by the root of the size.
        attended = scaled_dot_product_attention(query, key, value, scale=1.0)
        return torch.relu(attended.transpose(1, 2).flatten(2) + self.residual(fields))


class AutoInt(nn.Module):
    def __init__(
        self,
        layout: FeatureLayout,
        *,
        embedding_dim: int = 10,
        layers: int = 2,
        heads: int = 2,
        attention_dim: int = 8,
        hidden_units: Sequence[int] = (128, 64),
        dropout: float = 0.2,
    ) -> None:
        super().__init__()
        self.embeddings = FieldEmbeddings(layout, embedding_dim, deviation=0.05)
        count, numbers = self.embeddings.count, len(layout.numbers)
        # All numbers are one more field, the sum of a vector for each times its value.
        self.numbers = nn.Linear(numbers, embedding_dim, bias=False) if numbers else None
        sizes = [embedding_dim] + [heads * attention_dim] * layers
        self.attention = nn.Sequential(*(InteractingLayer(inputs, attention_dim, heads) for inputs in sizes[:-1]))
        self.out = nn.Linear((count + (self.numbers is not None)) * sizes[-1], 1)
        self.deep = DeepNetwork(flat_width(layout, self.embeddings), hidden_units, dropout) if hidden_units else None

    def forward(self, features: Features) -> Tensor:
        embeddings = fields = self.embeddings(features)
        if self.numbers is not None:
            fields = torch.cat([fields, self.numbers(features["numbers"]).unsqueeze(1)], dim=1)
        score: Tensor = self.out(self.attention(fields).flatten(1)).squeeze(1)
        return score if self.deep is None else score + self.deep(flatten_inputs(embeddings, features))
