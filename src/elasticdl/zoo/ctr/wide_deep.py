"""Wide & Deep: a linear model over ids beside a deep net over their embeddings (Cheng et al., DLRS 2016)."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

from elasticdl.features.layout import Layout
from elasticdl.zoo.ctr.inputs import Deep, Embeddings, Features, FirstOrder, flat, width


class WideDeep(nn.Module):
    def __init__(
        self, layout: Layout, *, columns: int = 10, hidden: Sequence[int] = (128, 64), dropout: float = 0.2
    ) -> None:
        super().__init__()
        self.wide = FirstOrder(layout)
        self.embeddings = Embeddings(layout, columns)
        self.deep = Deep(width(layout, self.embeddings), hidden, dropout)

    def forward(self, features: Features) -> Tensor:
        score: Tensor = self.wide(features) + self.deep(flat(self.embeddings(features), features))
        return score
