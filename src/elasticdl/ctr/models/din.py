"""DIN: attention over the user's earlier actions, weighted by the candidate (Zhou et al., KDD 2018)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn

from elasticdl.ctr.models.layers import Features, masked_mean, padding_index
from elasticdl.features.layout import PADDING_ID, FeatureLayout
from elasticdl.torch import Embedding, Initializer


class Dice(nn.Module):
    """PReLU whose corner follows the batch: p · x + (1 - p) · slope · x, where p is the sigmoid of normalised x."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(size, affine=False)
        self.slope = nn.Parameter(torch.full((size,), 0.25))

    def forward(self, x: Tensor) -> Tensor:
        share = torch.sigmoid(self.norm(x))
        return share * x + (1.0 - share) * self.slope * x


class TargetAttention(nn.Module):
    """Sums a sequence [rows, length, dim], weighted by a target [rows, dim]: [rows, dim].

    Weights are not normalised, so that many values near the target give a large sum. Padding has weight 0.
    """

    def __init__(self, embedding_dim: int, hidden_units: Sequence[int]) -> None:
        super().__init__()
        sizes = [4 * embedding_dim, *hidden_units]
        layers: list[nn.Module] = []
        for before, after in pairwise(sizes):
            layers += [nn.Linear(before, after), nn.PReLU()]
        self.weight = nn.Sequential(*layers, nn.Linear(sizes[-1], 1))

    def forward(self, rows: Tensor, target: Tensor, is_value: Tensor) -> Tensor:
        targets = target.unsqueeze(1).expand_as(rows)
        weights: Tensor = self.weight(torch.cat([rows, targets, rows - targets, rows * targets], dim=2))
        return (weights * rows * is_value.unsqueeze(2)).sum(dim=1)


class DIN(nn.Module):
    """Attends to each sequence with a target; a sequence without one becomes a mean."""

    def __init__(
        self,
        layout: FeatureLayout,
        *,
        embedding_dim: int = 10,
        attention: Sequence[int] = (32, 16),
        hidden_units: Sequence[int] = (128, 64),
        dropout: float = 0.2,
    ) -> None:
        super().__init__()
        self.table = Embedding(
            embedding_dim, initializer=Initializer(kind="normal", deviation=0.05), padding_idx=padding_index(layout)
        )
        self.targets = {name: layout.field_names.index(field) for name, field in layout.sequences.items() if field}
        self.sequences = tuple(layout.sequences)
        self.attention = nn.ModuleDict({name: TargetAttention(embedding_dim, attention) for name in self.targets})
        inputs = (len(layout.fields) + len(self.sequences)) * embedding_dim + len(layout.numbers)
        layers: list[nn.Module] = []
        for size in hidden_units:
            layers += [nn.Linear(inputs, size), Dice(size), nn.Dropout(dropout)]
            inputs = size
        self.deep = nn.Sequential(*layers, nn.Linear(inputs, 1))

    def forward(self, features: Features) -> Tensor:
        fields = self.table(features["ids"])
        inputs = [fields.flatten(1), features["numbers"]]
        for name in self.sequences:
            rows, is_value = self.table(features[name]), features[name] != PADDING_ID
            target = self.targets.get(name)
            if target is None:
                inputs.append(masked_mean(rows, is_value))
            else:
                inputs.append(self.attention[name](rows, fields[:, target], is_value))
        score: Tensor = self.deep(torch.cat(inputs, dim=1)).squeeze(1)
        return score
