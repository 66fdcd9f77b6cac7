"""Transforms as Keras layers, the preprocessor as a layer, and feature columns."""

from __future__ import annotations

from typing import Any

from elasticdl.features.transforms import Transform
from elasticdl.keras.embeddings.layers import SparseEmbedding
from elasticdl.keras.features.feature_column import (
    CategoricalColumn,
    categorical_column,
    concatenated_categorical_column,
    embedding_column,
)
from elasticdl.keras.features.layers import (
    Clip,
    ConcatenateWithOffset,
    Cross,
    DateParts,
    Discretization,
    FieldIds,
    Hashing,
    IndexLookup,
    LogRound,
    LogSquare,
    MissingIndicator,
    Normalizer,
    RoundIdentity,
    Sequence,
    ToNumber,
    ToRagged,
    ToSparse,
    TransformLayer,
)

LAYERS: dict[type[Transform], type[TransformLayer]] = {
    kind.definition_class: kind for kind in TransformLayer.__subclasses__()
}


def apply(definition: Transform, values: Any) -> Any:
    """Call the Keras layer of `definition`.

    The layer is made once for each definition, because a tf.function may only use lookup tables made before it.
    """
    layer = definition.__dict__.get("keras_layer")
    if layer is None:
        layer = LAYERS[type(definition)].from_definition(definition)
        definition.__dict__["keras_layer"] = layer  # as functools.cached_property does
    return layer(values)


__all__ = [
    "CategoricalColumn",
    "Clip",
    "ConcatenateWithOffset",
    "Cross",
    "DateParts",
    "Discretization",
    "FieldIds",
    "Hashing",
    "IndexLookup",
    "LogRound",
    "LogSquare",
    "MissingIndicator",
    "Normalizer",
    "RoundIdentity",
    "Sequence",
    "SparseEmbedding",
    "ToNumber",
    "ToRagged",
    "ToSparse",
    "apply",
    "categorical_column",
    "concatenated_categorical_column",
    "embedding_column",
]
