"""Transforms as torch modules, and an embedding of their ids."""

from __future__ import annotations

from typing import Any

import torch

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
    Normalizer,
    RoundIdentity,
    Sequence,
    SparseEmbedding,
    ToNumber,
    ToRagged,
    ToSparse,
    TransformModule,
)
from elasticdl.features.transforms import Transform

MODULES: dict[type[Transform], type[TransformModule]] = {
    kind.definition_class: kind for kind in TransformModule.__subclasses__()
}


def apply(definition: Transform, values: Any) -> Any:
    """Applies the module of `definition`."""
    first = values
    while not isinstance(first, torch.Tensor):
        first = first[0]
    return MODULES[type(definition)].from_definition(definition).to(first.device)(values)


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
