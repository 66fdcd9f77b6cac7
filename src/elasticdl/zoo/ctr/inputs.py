"""What every model of clicks begins with: embeddings of all fields from one table, first-order weights, numbers.

A front's output goes in: `ids` int64 [rows, fields], `numbers` float32 [rows, numbers], and each sequence by its name.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from elasticdl.features.layout import PADDING, Layout
from elasticdl.torch import Embedding, Initializer

Features = dict[str, Tensor]


class Embeddings(nn.Module):
    """[rows, fields + sequences, columns]. One table has the rows of all fields; a sequence is the mean of its own."""

    def __init__(self, layout: Layout, columns: int, deviation: float = 0.01) -> None:
        super().__init__()
        first = Initializer(kind="normal", deviation=deviation)
        self.table = Embedding(columns, initializer=first, padding_idx=padding(layout))
        self.sequences = tuple(layout.sequences)
        self.columns = columns
        self.count = len(layout.fields) + len(self.sequences)

    def forward(self, features: Features) -> Tensor:
        fields: Tensor = self.table(features["ids"])
        if not self.sequences:
            return fields
        means = [mean(self.table(features[name]), features[name] != PADDING) for name in self.sequences]
        return torch.cat([fields, torch.stack(means, dim=1)], dim=1)


class FirstOrder(nn.Module):
    """A weight for each id and each number, and a bias: the score of logistic regression, [rows]."""

    def __init__(self, layout: Layout) -> None:
        super().__init__()
        self.table = Embedding(1, initializer="zeros", padding_idx=padding(layout))
        self.sequences = tuple(layout.sequences)
        self.numbers = nn.Parameter(torch.zeros(len(layout.numbers)))
        self.bias = nn.Parameter(torch.zeros(()))

    def forward(self, features: Features) -> Tensor:
        score: Tensor = self.table(features["ids"]).sum(dim=(1, 2)) + features["numbers"] @ self.numbers + self.bias
        for name in self.sequences:
            score = score + mean(self.table(features[name]), features[name] != PADDING).squeeze(1)
        return score


def padding(layout: Layout) -> int | None:
    """The id without a row, where there are sequences: none is looked for otherwise."""
    return PADDING if layout.sequences else None


def mean(rows: Tensor, is_there: Tensor) -> Tensor:
    """Of what is there: [rows, longest, columns] to [rows, columns]; zeros where nothing is."""
    kept = is_there.unsqueeze(-1).to(rows.dtype)
    return (rows * kept).sum(dim=1) / kept.sum(dim=1).clamp(min=1.0)


def flat(embeddings: Tensor, features: Features) -> Tensor:
    """All embeddings of a row and its numbers, one after the other: what deep nets take."""
    return torch.cat([embeddings.flatten(1), features["numbers"]], dim=1)


def width(layout: Layout, embeddings: Embeddings) -> int:
    """Columns of `flat`."""
    return embeddings.count * embeddings.columns + len(layout.numbers)


def pairs(embeddings: Tensor) -> Tensor:
    """The sum of the products of all pairs of fields: [rows, fields, columns] to [rows, columns]."""
    return 0.5 * (embeddings.sum(dim=1).square() - embeddings.square().sum(dim=1))


def mlp(inputs: int, hidden: Sequence[int], dropout: float = 0.0) -> nn.Sequential:
    """Layers with ReLU; the last one's are the outputs."""
    layers: list[nn.Module] = []
    for size in hidden:
        layers += [nn.Linear(inputs, size), nn.ReLU(), *([nn.Dropout(dropout)] if dropout else [])]
        inputs = size
    return nn.Sequential(*layers)


class Deep(nn.Module):
    """A net with one output, [rows]."""

    def __init__(self, inputs: int, hidden: Sequence[int], dropout: float = 0.0) -> None:
        super().__init__()
        self.hidden = mlp(inputs, hidden, dropout)
        self.out = nn.Linear(hidden[-1] if hidden else inputs, 1)

    def forward(self, x: Tensor) -> Tensor:
        score: Tensor = self.out(self.hidden(x)).squeeze(1)
        return score
