"""Logistic regression: a weight for each id and each number (Richardson et al., WWW 2007)."""

from __future__ import annotations

from torch import Tensor, nn

from elasticdl.features.layout import Layout
from elasticdl.zoo.ctr.inputs import Features, FirstOrder


class LogisticRegression(nn.Module):
    def __init__(self, layout: Layout) -> None:
        super().__init__()
        self.linear = FirstOrder(layout)

    def forward(self, features: Features) -> Tensor:
        score: Tensor = self.linear(features)
        return score
