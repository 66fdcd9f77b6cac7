"""Wide & Deep: a linear model over ids beside a deep net over their embeddings (Cheng et al., DLRS 2016), in Keras."""

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
)
from elasticdl.features.layout import FeatureLayout
from elasticdl.keras.runtime import keras


class WideDeep(keras.Model):
    def __init__(
        self,
        layout: FeatureLayout,
        *,
        embedding_dim: int = 8,
        hidden_units: Sequence[int] = (16, 4),
        dropout: float = 0.0,
    ) -> None:
        super().__init__(name="wide_deep")
        self.wide = FirstOrderTerm(layout, name="wide")
        self.embeddings = FieldEmbeddings(layout, embedding_dim, name="embeddings")
        self.deep = DeepNetwork(hidden_units, dropout, name="deep")

    def call(self, features: Features, training: bool = False) -> Any:
        vectors = flatten_inputs(self.embeddings(features), self.embeddings, features)
        return ordered_sum(self.wide(features), self.deep(vectors, training=training))
