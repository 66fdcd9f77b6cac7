"""Transformations as torch modules, and an embedding for what they give."""

from __future__ import annotations

from typing import Any

import torch

from elasticdl.features.torch.embedding import SparseEmbedding
from elasticdl.features.torch.modules import (
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
    Module,
    Normalizer,
    RoundIdentity,
    Sequence,
    ToNumber,
    ToRagged,
    ToSparse,
)
from elasticdl.features.transforms import Transformation

MODULES: dict[type[Transformation], type[Module]] = {kind.defined: kind for kind in Module.__subclasses__()}


def apply(definition: Transformation, values: Any) -> Any:
    """What the module of `definition` gives."""
    first = values
    while not isinstance(first, torch.Tensor):
        first = first[0]
    return MODULES[type(definition)].of(definition).to(first.device)(values)


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
    "RoundIdentity",
    "Sequence",
    "SparseEmbedding",
    "ToNumber",
    "ToRagged",
    "ToSparse",
    "apply",
]
