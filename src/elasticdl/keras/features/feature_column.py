"""Feature columns of the first ElasticDL: the ids of a feature, several features as one, and their embedding."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from elasticdl.features.transforms import (
    Cross,
    Discretization,
    Hashing,
    IndexLookup,
    LogRound,
    RoundIdentity,
    Transform,
)
from elasticdl.keras.embeddings.layers import Embedding
from elasticdl.keras.features import layers, tensor_columns
from elasticdl.keras.features.layers import TransformLayer
from elasticdl.keras.runtime import keras

NAME_SEPARATOR = "_C_"


@dataclass(frozen=True)
class CategoricalColumn:
    """The ids of one feature, or of several: the ids of each follow those of the one before."""

    parts: tuple[tuple[str, TransformLayer], ...]  # the key of a feature, and the layer that makes ids of it

    @property
    def name(self) -> str:
        return NAME_SEPARATOR.join(key for key, _ in self.parts)

    @property
    def bucket_counts(self) -> tuple[int, ...]:
        return tuple(_bucket_count(layer.definition) for _, layer in self.parts)

    @property
    def num_buckets(self) -> int:
        """Ids are 0 … num_buckets - 1."""
        return sum(self.bucket_counts)

    def ids(self, features: Mapping[str, Any]) -> Any:
        """Dense [rows, ids] where all features are dense, ragged otherwise."""
        each = [layer(features[key]) for key, layer in self.parts]
        if any(tensor_columns.is_ragged(column) or tensor_columns.is_sparse(column) for column in each):
            each = [tensor_columns.make_ragged(*tensor_columns.flatten_rows(column)) for column in each]
        return layers.ConcatenateWithOffset([0, *accumulate(self.bucket_counts)][:-1])(each)


def categorical_column(key: str, transformation: Transform | TransformLayer) -> CategoricalColumn:
    """Returns the feature `key`, with ids from `transformation`: Hashing, IndexLookup, Discretization or the like."""
    from elasticdl.keras.features import LAYERS

    if isinstance(transformation, Transform):
        transformation = LAYERS[type(transformation)].from_definition(transformation)
    _bucket_count(transformation.definition)
    return CategoricalColumn(((key, transformation),))


def concatenated_categorical_column(categorical_columns: Sequence[CategoricalColumn]) -> CategoricalColumn:
    """Joins columns: ids are offset by the buckets of the columns before; names are joined by `_C_`."""
    if not categorical_columns or not all(isinstance(column, CategoricalColumn) for column in categorical_columns):
        raise ValueError(
            "concatenated_categorical_column: expected categorical columns, one or more. "
            f"Received: {categorical_columns!r}; make them by categorical_column(key, transformation)"
        )
    return CategoricalColumn(tuple(part for column in categorical_columns for part in column.parts))


def embedding_column(
    categorical_column: CategoricalColumn, dimension: int, combiner: str = "mean", initializer: Any = "uniform"
) -> EmbeddingColumn:
    """Returns a layer that maps a dict of features to one vector per row. In a job with ps they hold its rows."""
    parts = categorical_column.parts
    return EmbeddingColumn([key for key, _ in parts], [layer for _, layer in parts], dimension, combiner, initializer)


@keras.saving.register_keras_serializable("elasticdl.features")
class EmbeddingColumn(keras.layers.Layer):
    """The layer that `embedding_column` makes."""

    def __init__(
        self, keys: Sequence[str], parts: Sequence[Any], dimension: int, combiner: str, initializer: Any, **options: Any
    ) -> None:
        super().__init__(autocast=False, **options)
        self._convert_input_args = False
        self.keys = list(keys)
        self.parts = [keras.saving.deserialize_keras_object(part) if isinstance(part, dict) else part for part in parts]
        self.column = CategoricalColumn(tuple(zip(self.keys, self.parts, strict=True)))
        self.dimension = dimension
        self.embedding = Embedding(
            output_dim=dimension,
            input_dim=self.column.num_buckets,
            embeddings_initializer=initializer,
            combiner=combiner,
            name=f"{self.column.name}_embedding",
        )

    def build(self, input_shape: Any = None) -> None:
        self.embedding.build()
        self.built = True

    def call(self, features: Mapping[str, Any]) -> Any:
        if missing := [key for key in self.keys if key not in features]:
            raise ValueError(f"{self.name}: expected a dict with {', '.join(self.keys)}. Missing: {', '.join(missing)}")
        tensors = {key: tensor_columns.to_tensors(features[key]) for key in self.keys}
        return self.embedding(self.column.ids(tensors))

    def compute_output_spec(self, features: Mapping[str, Any]) -> Any:
        return keras.KerasTensor((features[self.keys[0]].shape[0], self.dimension), dtype=self.compute_dtype)

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "keys": self.keys,
            "parts": [keras.saving.serialize_keras_object(part) for part in self.parts],
            "dimension": self.dimension,
            "combiner": self.embedding.combiner,
            "initializer": keras.initializers.serialize(self.embedding.embeddings_initializer),
        }


def _bucket_count(definition: Any) -> int:
    match definition:
        case Hashing() | LogRound() | Cross():
            return definition.num_bins
        case IndexLookup() | Discretization():
            return definition.num_bins()
        case RoundIdentity():
            return definition.num_buckets
    raise ValueError(
        "categorical_column: expected a transform that has a number of bins: Hashing, IndexLookup, "
        f"Discretization, LogRound or RoundIdentity. Received: {type(definition).__name__}"
    )
