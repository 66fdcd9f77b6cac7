"""DeepFM: a factorization machine and a deep net over the same factors (Guo et al., IJCAI 2017)."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

from elasticdl.features.layout import Layout
from elasticdl.zoo.ctr.inputs import Deep, Embeddings, Features, FirstOrder, flat, pairs, width


class DeepFM(nn.Module):
    def __init__(
        self, layout: Layout, *, columns: int = 10, hidden: Sequence[int] = (128, 64), dropout: float = 0.2
    ) -> None:
        super().__init__()
        self.linear = FirstOrder(layout)
        self.factors = Embeddings(layout, columns)
        self.deep = Deep(width(layout, self.factors), hidden, dropout)

    def forward(self, features: Features) -> Tensor:
        factors = self.factors(features)
        machine = self.linear(features) + pairs(factors).sum(dim=1)
        score: Tensor = machine + self.deep(flat(factors, features))
        return score
