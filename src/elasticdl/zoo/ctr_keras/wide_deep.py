"""Wide & Deep: a linear model over ids beside a deep net over their embeddings (Cheng et al., DLRS 2016), in Keras."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from elasticdl.features.layout import Layout
from elasticdl.keras.runtime import keras
from elasticdl.zoo.ctr_keras.inputs import Deep, Embeddings, Features, FirstOrder, flat, total


class WideDeep(keras.Model):
    def __init__(
        self, layout: Layout, *, columns: int = 8, hidden: Sequence[int] = (16, 4), dropout: float = 0.0
    ) -> None:
        super().__init__(name="wide_deep")
        self.wide = FirstOrder(layout, name="wide")
        self.embeddings = Embeddings(layout, columns, name="embeddings")
        self.deep = Deep(hidden, dropout, name="deep")

    def call(self, features: Features, training: bool = False) -> Any:
        vectors = flat(self.embeddings(features), self.embeddings, features)
        return total(self.wide(features), self.deep(vectors, training=training))
