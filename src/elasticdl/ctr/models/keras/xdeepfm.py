"""xDeepFM: a compressed interaction network, a linear model and a deep net (Lian et al., KDD 2018), in Keras."""

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
from elasticdl.keras.runtime import keras, tf


class CIN(keras.layers.Layer):
    """Products of fields, of one order more in each layer: [rows, fields, embedding_dim] to [rows, sum of sizes].

    Map h of layer k is the sum over i, j of W[k, h, i, j] · (map i of layer k - 1) ∘ (field j).
    """

    def __init__(self, sizes: Sequence[int], **options: Any) -> None:
        super().__init__(**options)
        self.mixing = [keras.layers.Dense(size, activation="relu", name=f"maps_{n}") for n, size in enumerate(sizes)]

    def call(self, fields: Any) -> Any:
        by_dimension = tf.transpose(fields, [0, 2, 1])  # [rows, embedding_dim, fields]
        sums, maps = [], by_dimension
        for layer in self.mixing:
            products = maps[..., :, tf.newaxis] * by_dimension[..., tf.newaxis, :]
            maps = layer(tf.reshape(products, [-1, by_dimension.shape[1], maps.shape[2] * by_dimension.shape[2]]))
            sums.append(tf.reduce_sum(maps, 1))
        return tf.concat(sums, 1)


class XDeepFM(keras.Model):
    def __init__(
        self,
        layout: FeatureLayout,
        *,
        embedding_dim: int = 8,
        cin_layers: Sequence[int] = (16, 16),
        hidden_units: Sequence[int] = (128, 64),
        dropout: float = 0.2,
    ) -> None:
        super().__init__(name="xdeepfm")
        self.linear = FirstOrderTerm(layout, name="linear")
        self.embeddings = FieldEmbeddings(layout, embedding_dim, name="embeddings")
        self.cin = CIN(cin_layers, name="cin")
        self.crossed = keras.layers.Dense(1, use_bias=False, name="crossed")
        self.deep = DeepNetwork(hidden_units, dropout, name="deep")

    def call(self, features: Features, training: bool = False) -> Any:
        vectors = self.embeddings(features)
        crossed = self.crossed(self.cin(vectors))[:, 0]
        deep = self.deep(flatten_inputs(vectors, self.embeddings, features), training=training)
        return ordered_sum(self.linear(features), crossed, deep)
