"""Deep & Cross: a cross network beside a deep net (Wang et al., ADKDD 2017), in Keras."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from elasticdl.ctr.models.keras.layers import DeepNetwork, Features, FieldEmbeddings, flatten_inputs
from elasticdl.features.layout import FeatureLayout
from elasticdl.keras.runtime import keras, tf


class CrossNetwork(keras.layers.Layer):
    """x ← first · (x · w) + b + x, layer by layer: products of one order more in each."""

    def __init__(self, depth: int, **options: Any) -> None:
        super().__init__(**options)
        self.depth = depth

    def build(self, input_shape: Any) -> None:
        width = input_shape[-1]
        first = keras.initializers.RandomNormal(stddev=width**-0.5)
        self.kernels = [self.add_weight(shape=(width,), initializer=first, name=f"w{n}") for n in range(self.depth)]
        self.biases = [self.add_weight(shape=(width,), initializer="zeros", name=f"b{n}") for n in range(self.depth)]
        self.built = True

    def call(self, first: Any) -> Any:
        x = first
        for kernel, bias in zip(self.kernels, self.biases, strict=True):
            # Not one chain of +, which TensorFlow's optimizer may regroup (see `ordered_sum`).
            x = tf.nn.bias_add(first * tf.linalg.matvec(x, kernel)[:, tf.newaxis], bias) + x
        return x


class DCN(keras.Model):
    def __init__(
        self,
        layout: FeatureLayout,
        *,
        embedding_dim: int = 8,
        layers: int = 2,
        hidden_units: Sequence[int] = (128, 64),
        dropout: float = 0.2,
    ) -> None:
        super().__init__(name="dcn")
        self.embeddings = FieldEmbeddings(layout, embedding_dim, name="embeddings")
        self.cross = CrossNetwork(layers, name="cross")
        self.deep = DeepNetwork(hidden_units, dropout, out=False, name="deep")
        self.out = keras.layers.Dense(1, name="out")

    def call(self, features: Features, training: bool = False) -> Any:
        x = flatten_inputs(self.embeddings(features), self.embeddings, features)
        return self.out(tf.concat([self.cross(x), self.deep(x, training=training)], 1))[:, 0]
