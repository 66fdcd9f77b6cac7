"""The layout of a preprocessor's output, which is what a model takes."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

FIELD_BITS = 48
"""An id is the number of its field above these bits, and the value below them."""

MISSING_ID, UNKNOWN_ID, FIRST_ID = 0, 1, 2
"""Values of a field: one that is missing, one out of the vocabulary, and the first of the treatment's own."""

PADDING_ID = -1
"""Fills sequences up to the longest of a batch."""


class IdField(BaseModel):
    """A column of ids. Values are 0 … size - 1."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    size: int
    group: str = ""  # e.g. "user": models may treat fields of a group alike


class FeatureLayout(BaseModel):
    """`ids` int64 [rows, fields]; `numbers` float32 [rows, numbers]; a sequence's name: int64 [rows, longest]."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    fields: tuple[IdField, ...] = ()
    numbers: tuple[str, ...] = ()
    # Sequences share ids with the field of the same place in `targets`: name to the field's name, "" for none.
    sequences: dict[str, str] = {}

    @property
    def field_names(self) -> tuple[str, ...]:
        """Of the fields."""
        return tuple(field.name for field in self.fields)
