"""Logistic regression: a weight for each id and each number (Richardson et al., WWW 2007)."""

from __future__ import annotations

from torch import Tensor, nn

from elasticdl.ctr.models.layers import Features, FirstOrderTerm
from elasticdl.features.layout import FeatureLayout


class LogisticRegression(nn.Module):
    def __init__(self, layout: FeatureLayout) -> None:
        super().__init__()
        self.linear = FirstOrderTerm(layout)

    def forward(self, features: Features) -> Tensor:
        score: Tensor = self.linear(features)
        return score
