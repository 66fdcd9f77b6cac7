"""Columns to features: statistics, transformations, treatments, and the front that binds them."""

from elasticdl.features.current import use
from elasticdl.features.ragged import Ragged, Sparse
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
    Transformation,
)

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
    "Transformation",
    "use",
]
