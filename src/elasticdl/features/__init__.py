"""Columns to features: statistics, transforms, and the preprocessor that applies them."""

from elasticdl.features.transforms import (
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
    Transform,
)
from elasticdl.features.transforms.array_columns import Ragged, Sparse
from elasticdl.features.transforms.current_statistics import use_statistics

__all__ = [
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
    "Ragged",
    "RoundIdentity",
    "Sequence",
    "Sparse",
    "ToNumber",
    "ToRagged",
    "ToSparse",
    "Transform",
    "use_statistics",
]
