"""Transformations: pure functions over the values of a column, defined once, in NumPy and Arrow."""

from __future__ import annotations

from elasticdl.features.transforms.clip import Clip
from elasticdl.features.transforms.concatenate_with_offset import ConcatenateWithOffset
from elasticdl.features.transforms.cross import Cross
from elasticdl.features.transforms.date_parts import DateParts
from elasticdl.features.transforms.discretization import Discretization
from elasticdl.features.transforms.field_ids import FieldIds
from elasticdl.features.transforms.hashing import Hashing
from elasticdl.features.transforms.index_lookup import IndexLookup
from elasticdl.features.transforms.log_round import LogRound
from elasticdl.features.transforms.log_square import LogSquare
from elasticdl.features.transforms.missing_indicator import MissingIndicator
from elasticdl.features.transforms.normalizer import Normalizer
from elasticdl.features.transforms.round_identity import RoundIdentity
from elasticdl.features.transforms.sequence import Sequence
from elasticdl.features.transforms.to_number import ToNumber
from elasticdl.features.transforms.to_ragged import ToRagged
from elasticdl.features.transforms.to_sparse import ToSparse
from elasticdl.features.transforms.transformation import Transformation

ALL: tuple[type[Transformation], ...] = (
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
    "ALL",
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
    "Transformation",
]
