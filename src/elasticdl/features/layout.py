"""The layout of a preprocessor's output, which is what a model takes."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

FIELD_BITS = 48
"""An id has the number of its field above these bits and the value below them."""

MISSING_ID, UNKNOWN_ID, FIRST_ID = 0, 1, 2
"""Values of a field: a missing one, one out of the vocabulary, and the first that the transform itself gives."""

PADDING_ID = -1
"""Fills sequences up to the same length."""


class IdField(BaseModel):
    """A column of ids with values 0 … size - 1."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    size: int
    group: str = ""  # e.g. "user": models may treat fields of a group alike


class FeatureLayout(BaseModel):
    """`ids` int64 [rows, fields]; `numbers` float32 [rows, numbers]; a sequence's name: int64 [rows, max_length]."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    fields: tuple[IdField, ...] = ()
    numbers: tuple[str, ...] = ()
    # Each sequence's name, with the name of the field whose ids it shares, or "" if its ids are its own.
    sequences: dict[str, str] = {}

    @property
    def field_names(self) -> tuple[str, ...]:
        return tuple(field.name for field in self.fields)
