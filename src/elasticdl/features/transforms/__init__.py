"""Transforms: pure functions over the values of a column, defined once, in NumPy and Arrow."""

from __future__ import annotations

from elasticdl.features.transforms.base import Transform
from elasticdl.features.transforms.binning import Discretization, LogRound, LogSquare, RoundIdentity
from elasticdl.features.transforms.categorical import Cross, Hashing, IndexLookup
from elasticdl.features.transforms.date_parts import DateParts
from elasticdl.features.transforms.numeric import Clip, MissingIndicator, Normalizer, ToNumber
from elasticdl.features.transforms.sequences import Sequence, ToRagged, ToSparse
from elasticdl.features.transforms.shared_ids import ConcatenateWithOffset, FieldIds

ALL_TRANSFORMS: tuple[type[Transform], ...] = (
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
)

__all__ = [
    "ALL_TRANSFORMS",
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
    "ToNumber",
    "ToRagged",
    "ToSparse",
    "Transform",
]
