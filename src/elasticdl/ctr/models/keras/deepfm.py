"""DeepFM: a factorization machine and a deep net over the same factors (Guo et al., IJCAI 2017), in Keras."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from elasticdl.ctr.models.keras.layers import (
    DeepNetwork,
    Features,
    FieldEmbeddings,
    FirstOrderTerm,
    flatten_inputs,
    ordered_sum,
    pairwise_products,
)
from elasticdl.features.layout import FeatureLayout
from elasticdl.keras.runtime import keras, tf


class DeepFM(keras.Model):
    def __init__(
        self,
        layout: FeatureLayout,
        *,
        embedding_dim: int = 8,
        hidden_units: Sequence[int] = (128, 64),
        dropout: float = 0.2,
    ) -> None:
        super().__init__(name="deepfm")
        self.linear = FirstOrderTerm(layout, name="linear")
        self.factors = FieldEmbeddings(layout, embedding_dim, name="factors")
        self.deep = DeepNetwork(hidden_units, dropout, name="deep")

    def call(self, features: Features, training: bool = False) -> Any:
        factors = self.factors(features)
        deep = self.deep(flatten_inputs(factors, self.factors, features), training=training)
        return ordered_sum(self.linear(features), tf.reduce_sum(pairwise_products(factors), 1), deep)
