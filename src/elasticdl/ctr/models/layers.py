"""Layers that CTR models share: embeddings of all fields from one table, first-order weights, deep networks."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from elasticdl.features.layout import PADDING_ID, FeatureLayout
from elasticdl.torch import Embedding, Initializer

Features = dict[str, Tensor]


class FieldEmbeddings(nn.Module):
    """Looks up embeddings: [rows, fields + sequences, embedding_dim].

    One table has the rows of all fields; a sequence becomes the mean of its embeddings.
    """

    def __init__(self, layout: FeatureLayout, embedding_dim: int, deviation: float = 0.01) -> None:
        super().__init__()
        first = Initializer(kind="normal", deviation=deviation)
        self.table = Embedding(embedding_dim, initializer=first, padding_idx=padding_index(layout))
        self.sequences = tuple(layout.sequences)
        self.embedding_dim = embedding_dim
        self.count = len(layout.fields) + len(self.sequences)

    def forward(self, features: Features) -> Tensor:
        fields: Tensor = self.table(features["ids"])
        if not self.sequences:
            return fields
        means = [masked_mean(self.table(features[name]), features[name] != PADDING_ID) for name in self.sequences]
        return torch.cat([fields, torch.stack(means, dim=1)], dim=1)


class FirstOrderTerm(nn.Module):
    """Scores rows by a weight for each id and number, and a bias, as logistic regression does: [rows]."""

    def __init__(self, layout: FeatureLayout) -> None:
        super().__init__()
        self.table = Embedding(1, initializer="zeros", padding_idx=padding_index(layout))
        self.sequences = tuple(layout.sequences)
        self.numbers = nn.Parameter(torch.zeros(len(layout.numbers)))
        self.bias = nn.Parameter(torch.zeros(()))

    def forward(self, features: Features) -> Tensor:
        score: Tensor = self.table(features["ids"]).sum(dim=(1, 2)) + features["numbers"] @ self.numbers + self.bias
        for name in self.sequences:
            score = score + masked_mean(self.table(features[name]), features[name] != PADDING_ID).squeeze(1)
        return score


def padding_index(layout: FeatureLayout) -> int | None:
    """Returns the id without a row if there are sequences; without them nothing is padded."""
    return PADDING_ID if layout.sequences else None


def masked_mean(rows: Tensor, is_value: Tensor) -> Tensor:
    """Averages embeddings that are not padding: [rows, length, dim] to [rows, dim]; zeros if there are none."""
    mask = is_value.unsqueeze(-1).to(rows.dtype)
    return (rows * mask).sum(dim=1) / mask.sum(dim=1).clamp(min=1.0)


def flatten_inputs(embeddings: Tensor, features: Features) -> Tensor:
    """Concatenates all embeddings of a row and its numbers, as input of a deep network."""
    return torch.cat([embeddings.flatten(1), features["numbers"]], dim=1)


def flat_width(layout: FeatureLayout, embeddings: FieldEmbeddings) -> int:
    """The width of `flatten_inputs`."""
    return embeddings.count * embeddings.embedding_dim + len(layout.numbers)


def pairwise_products(embeddings: Tensor) -> Tensor:
    """Sums the products of all pairs of fields: [rows, fields, embedding_dim] to [rows, embedding_dim]."""
    return 0.5 * (embeddings.sum(dim=1).square() - embeddings.square().sum(dim=1))


def mlp(inputs: int, hidden_units: Sequence[int], dropout: float = 0.0) -> nn.Sequential:
    """Builds layers with ReLU; the last of them gives the output."""
    layers: list[nn.Module] = []
    for size in hidden_units:
        layers += [nn.Linear(inputs, size), nn.ReLU(), *([nn.Dropout(dropout)] if dropout else [])]
        inputs = size
    return nn.Sequential(*layers)


class DeepNetwork(nn.Module):
    """A deep network with one output: [rows]."""

    def __init__(self, inputs: int, hidden_units: Sequence[int], dropout: float = 0.0) -> None:
        super().__init__()
        self.hidden = mlp(inputs, hidden_units, dropout)
        self.out = nn.Linear(hidden_units[-1] if hidden_units else inputs, 1)

    def forward(self, x: Tensor) -> Tensor:
        score: Tensor = self.out(self.hidden(x)).squeeze(1)
        return score
