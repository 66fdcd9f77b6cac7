"""Layers that CTR models in Keras share: embeddings of all fields from one table, first-order weights, deep nets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from elasticdl.features.layout import PADDING_ID, FeatureLayout
from elasticdl.keras import Embedding
from elasticdl.keras.runtime import keras, tf

Features = dict[str, Any]


class FieldEmbeddings(keras.layers.Layer):
    """Looks up embeddings: [rows, fields + sequences, embedding_dim].

    One table has the rows of all fields; a sequence becomes the mean of its embeddings.
    """

    def __init__(self, layout: FeatureLayout, embedding_dim: int, initializer: Any = None, **options: Any) -> None:
        super().__init__(**options)
        first = initializer or keras.initializers.RandomNormal(stddev=0.01)
        self.table = Embedding(embedding_dim, embeddings_initializer=first, name="table")
        self.sequences = tuple(layout.sequences)
        self.embedding_dim = embedding_dim
        self.count = len(layout.fields) + len(self.sequences)

    def call(self, features: Features) -> Any:
        fields = self.table(features["ids"])
        if not self.sequences:
            return fields
        means = [ragged_mean(self.table(drop_padding(features[name]))) for name in self.sequences]
        return tf.concat([fields, tf.stack(means, 1)], 1)


class FirstOrderTerm(keras.layers.Layer):
    """Scores rows by a weight for each id and number, and a bias, as logistic regression does: [rows]."""

    def __init__(self, layout: FeatureLayout, **options: Any) -> None:
        super().__init__(**options)
        self.id_weights = FieldEmbeddings(layout, 1, "zeros", name="id_weights")
        self.count = len(layout.numbers)

    def build(self, input_shape: Any = None) -> None:
        self.numbers = self.add_weight(shape=(self.count,), initializer="zeros", name="numbers")
        self.bias = self.add_weight(shape=(), initializer="zeros", name="bias")
        self.built = True

    def call(self, features: Features) -> Any:
        id_scores = tf.reduce_sum(self.id_weights(features), [1, 2])
        return ordered_sum(id_scores, tf.linalg.matvec(features["numbers"], self.numbers)) + self.bias


class DeepNetwork(keras.layers.Layer):
    """A deep network with one output, [rows]; without `out`, the output of its last hidden layer."""

    def __init__(self, hidden_units: Sequence[int], dropout: float, out: bool = True, **options: Any) -> None:
        super().__init__(**options)
        self.hidden = [
            keras.layers.Dense(size, activation="relu", name=f"hidden_{n}") for n, size in enumerate(hidden_units)
        ]
        self.dropouts = [keras.layers.Dropout(dropout, name=f"dropout_{n}") for n in range(len(hidden_units))]
        self.out = keras.layers.Dense(1, name="out") if out else None

    def call(self, x: Any, training: bool = False) -> Any:
        for layer, dropout in zip(self.hidden, self.dropouts, strict=True):
            x = dropout(layer(x), training=training)
        return x if self.out is None else self.out(x)[:, 0]


def drop_padding(ids: Any) -> Any:
    """Makes a padded sequence ragged."""
    return tf.RaggedTensor.from_tensor(ids, padding=tf.constant(PADDING_ID, tf.int64))


def ragged_mean(rows: Any) -> Any:
    """Averages ragged embeddings: [rows, values, dim] to [rows, dim]; zeros if there are none."""
    counts = tf.cast(rows.row_lengths(), tf.float32)[:, tf.newaxis]
    return tf.math.divide_no_nan(tf.reduce_sum(rows, 1), counts)


def flatten_inputs(embeddings: Any, layer: FieldEmbeddings, features: Features) -> Any:
    """Concatenates all embeddings of a row and its numbers, as input of a deep network."""
    numbers = features["numbers"]
    return tf.concat([tf.reshape(embeddings, [-1, layer.count * layer.embedding_dim]), numbers], 1)


def ordered_sum(*terms: Any) -> Any:
    """Sums tensors [rows], always in the same order.

    TensorFlow's optimizer regroups a + b + c if it can prove their shapes equal. It may do so in a SavedModel and not
    in a job, and then the two differ in the last bit.
    """
    return tf.reduce_sum(tf.stack(terms, 1), 1)


def pairwise_products(embeddings: Any) -> Any:
    """Sums the products of all pairs of fields: [rows, fields, embedding_dim] to [rows, embedding_dim]."""
    return 0.5 * (tf.square(tf.reduce_sum(embeddings, 1)) - tf.reduce_sum(tf.square(embeddings), 1))
