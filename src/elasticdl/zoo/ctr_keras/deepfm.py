"""DeepFM: a factorization machine and a deep net over the same factors (Guo et al., IJCAI 2017), in Keras."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from elasticdl.features.layout import Layout
from elasticdl.keras.runtime import keras, tf
from elasticdl.zoo.ctr_keras.inputs import Deep, Embeddings, Features, FirstOrder, flat, pairs, total


class DeepFM(keras.Model):
    def __init__(
        self, layout: Layout, *, columns: int = 8, hidden: Sequence[int] = (128, 64), dropout: float = 0.2
    ) -> None:
        super().__init__(name="deepfm")
        self.linear = FirstOrder(layout, name="linear")
        self.factors = Embeddings(layout, columns, name="factors")
        self.deep = Deep(hidden, dropout, name="deep")

    def call(self, features: Features, training: bool = False) -> Any:
        factors = self.factors(features)
        deep = self.deep(flat(factors, self.factors, features), training=training)
        return total(self.linear(features), tf.reduce_sum(pairs(factors), 1), deep)
