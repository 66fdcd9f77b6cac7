"""Encoders: each computes one field of ids, one number, or one sequence from a batch of raw columns."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Annotated, Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field

from elasticdl.features.layout import FIELD_BITS, FIRST_ID, MISSING_ID, PADDING_ID, UNKNOWN_ID
from elasticdl.features.preprocessing.raw_columns import RawColumns, TextColumn
from elasticdl.features.statistics import ColumnKind
from elasticdl.features.transforms import (
    Cross,
    DateParts,
    Discretization,
    Hashing,
    IndexLookup,
    LogRound,
    LogSquare,
    Normalizer,
    RoundIdentity,
)

DATE_PART_SIZES = {
    "year": 10_000, "month": 13, "day": 32, "yearday": 366, "weekday": 7, "hour": 24, "minute": 60, "second": 60,
}  # fmt: skip

_LOG_SQUARE = LogSquare()

Ids = NDArray[np.int64]
Floats = NDArray[np.float32]


class _ColumnEncoder(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", ignored_types=(cached_property,))

    name: str
    column: str


class NumberEncoder(_ColumnEncoder):
    """(f(x) - subtract) / divide, where f is ln(1 + x - shift) for `log`; a missing value gives `missing`."""

    how: Literal["number"] = "number"
    log: bool = False
    shift: float = 0.0
    low: float | None = None  # clipped to, before anything else
    high: float | None = None
    subtract: float = 0.0
    divide: float = 1.0
    missing: float = 0.0

    @cached_property
    def _normalizer(self) -> Normalizer:
        return Normalizer(self.subtract, self.divide)

    def encode(self, columns: RawColumns) -> Floats:
        values = columns.numbers(self.column)
        if self.low is not None or self.high is not None:
            values = np.clip(values, self.low, self.high)
        if self.log:
            values = np.log1p(np.maximum(values - self.shift, 0.0))
        made = self._normalizer.transform_arrays(values)
        return np.where(np.isnan(values), np.float32(self.missing), made)


class MissingIndicatorEncoder(_ColumnEncoder):
    """1 where there is no value."""

    how: Literal["missing"] = "missing"
    kind: ColumnKind = ColumnKind.TEXT

    def encode(self, columns: RawColumns) -> Floats:
        if self.kind is ColumnKind.NUMBER:
            return np.isnan(columns.numbers(self.column)).astype(np.float32)
        return columns.texts(self.column, ColumnKind.TEXT).is_missing.astype(np.float32)


class DiscretizationEncoder(_ColumnEncoder):
    how: Literal["bounds"] = "bounds"
    bounds: tuple[float, ...]

    @cached_property
    def _discretization(self) -> Discretization:
        return Discretization(self.bounds)

    @property
    def size(self) -> int:
        return FIRST_ID + len(self.bounds) + 1

    def encode(self, columns: RawColumns) -> Ids:
        values = columns.numbers(self.column)
        return np.where(np.isnan(values), MISSING_ID, FIRST_ID + self._discretization.transform_arrays(values))


class LogSquareEncoder(_ColumnEncoder):
    """Numbers from `lowest` on have ids of their own; what is beyond shares the id of the end."""

    how: Literal["log_square"] = "log_square"
    lowest: int = -16
    highest: int = 1906  # floor(ln(2^63)²)

    @property
    def size(self) -> int:
        return FIRST_ID + 1 + self.highest - self.lowest

    def encode(self, columns: RawColumns) -> Ids:
        return columns.cached((self.how, self.column, self.lowest, self.highest), lambda: self._made(columns))

    def _made(self, columns: RawColumns) -> Ids:
        values = columns.numbers(self.column)
        made = np.clip(_LOG_SQUARE.transform_arrays(values), self.lowest, self.highest)
        return np.where(np.isnan(values), MISSING_ID, FIRST_ID + made - self.lowest)


class LogRoundEncoder(_ColumnEncoder):
    how: Literal["log_round"] = "log_round"
    bins: int
    base: float | None = None
    edges: tuple[float, ...]  # where the rounded logarithm changes, for those who have no LogRound

    @cached_property
    def _log_round(self) -> LogRound:
        return LogRound(self.bins, UNKNOWN_ID - FIRST_ID, self.base)  # what is out of range is unknown

    @property
    def size(self) -> int:
        return FIRST_ID + self.bins

    def encode(self, columns: RawColumns) -> Ids:
        values = columns.numbers(self.column)
        made = self._log_round.transform_arrays(values)
        return np.where(np.isnan(values), MISSING_ID, FIRST_ID + made)


class RoundIdentityEncoder(_ColumnEncoder):
    how: Literal["round"] = "round"
    bins: int

    @property
    def size(self) -> int:
        return FIRST_ID + self.bins

    def encode(self, columns: RawColumns) -> Ids:
        values = columns.numbers(self.column)
        made = RoundIdentity(self.bins, UNKNOWN_ID - FIRST_ID).transform_arrays(values)
        return np.where(np.isnan(values), MISSING_ID, FIRST_ID + made)


class IndexLookupEncoder(_ColumnEncoder):
    """Ids 1 … `unknown` are of values out of the vocabulary; those after them are places in it."""

    how: Literal["vocabulary"] = "vocabulary"
    kind: ColumnKind = ColumnKind.TEXT
    values: tuple[str, ...]
    unknown: int = 1

    @property
    def size(self) -> int:
        return 1 + self.unknown + len(self.values)

    @cached_property
    def _lookup(self) -> IndexLookup:
        return IndexLookup(self.values, self.unknown)

    def encode_texts(self, texts: Any) -> Ids:
        places: Ids = self._lookup.transform_arrays(texts)
        known = len(self.values)
        return np.where(places < known, places + 1 + self.unknown, places - known + 1)

    def encode(self, columns: RawColumns) -> Ids:
        texts = columns.texts(self.column, self.kind)
        if self.unknown > 1:
            return texts.map_distinct(self.encode_texts)
        # As `of`, but without a fingerprint: others have one id, next to FIRST as -1 is to the first place.
        return texts.map_distinct(lambda distinct: self._lookup.find(distinct) + FIRST_ID)


class HashingEncoder(_ColumnEncoder):
    how: Literal["hash"] = "hash"
    kind: ColumnKind = ColumnKind.TEXT
    bins: int

    @property
    def size(self) -> int:
        return FIRST_ID + self.bins

    def encode_texts(self, texts: Any) -> Ids:
        made: Ids = FIRST_ID + Hashing(self.bins).transform_arrays(texts)
        return made

    def encode(self, columns: RawColumns) -> Ids:
        return columns.texts(self.column, self.kind).map_distinct(self.encode_texts)


class DatePartEncoder(_ColumnEncoder):
    how: Literal["date"] = "date"
    part: str

    @property
    def size(self) -> int:
        return FIRST_ID + DATE_PART_SIZES[self.part]

    def encode(self, columns: RawColumns) -> Ids:
        def part(texts: Any) -> Ids:
            found = DateParts((self.part,)).transform_arrays(texts)[:, 0]
            return np.where(found < 0, UNKNOWN_ID, FIRST_ID + found)

        return columns.texts(self.column, ColumnKind.DATE).map_distinct(part)


class CrossEncoder(BaseModel):
    """Missing where all of its columns are."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    how: Literal["cross"] = "cross"
    name: str
    columns: tuple[str, ...]
    kinds: tuple[ColumnKind, ...]
    bins: int

    @property
    def size(self) -> int:
        return FIRST_ID + self.bins

    def encode(self, columns: RawColumns) -> Ids:
        found = [columns.texts(name, kind) for name, kind in zip(self.columns, self.kinds, strict=True)]
        made = Cross(self.bins).transform_arrays([one.to_array() for one in found])
        return np.where(np.all([one.is_missing for one in found], axis=0), MISSING_ID, FIRST_ID + made)


FieldEncoder = Annotated[
    DiscretizationEncoder
    | LogSquareEncoder
    | LogRoundEncoder
    | RoundIdentityEncoder
    | IndexLookupEncoder
    | HashingEncoder
    | DatePartEncoder
    | CrossEncoder,
    Field(discriminator="how"),
]
AnyNumberEncoder = Annotated[NumberEncoder | MissingIndicatorEncoder, Field(discriminator="how")]


class SequenceEncoder(BaseModel):
    """A text split into values, encoded as those of a field; the last `longest` of them."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    column: str
    sep: str
    longest: int
    like: str  # a field's name: its ids are this field's
    of: Annotated[IndexLookupEncoder | HashingEncoder, Field(discriminator="how")]

    def encode(self, columns: RawColumns, field: int) -> Ids:

        return encode_padded(
            columns.texts(self.column, ColumnKind.TEXT), self.sep, self.longest, self.of.encode_texts, field
        )


def encode_padded(
    texts: TextColumn, sep: str, longest: int, encode: Callable[[Any], NDArray[np.int64]], field: int
) -> NDArray[np.int64]:
    """[rows, longest]: the last `longest` values of each row as ids of `field`, then -1. Empty values are left out."""
    lists = pc.split_pattern(texts.distinct, sep)
    counts = pc.list_value_length(lists).to_numpy(zero_copy_only=False).astype(np.int64)
    flat = lists.flatten()
    owner = np.repeat(np.arange(len(counts)), counts)
    is_full = pc.not_equal(flat, "").to_numpy(zero_copy_only=False)
    owner, flat = owner[is_full], flat.filter(pa.array(is_full))
    counts = np.bincount(owner, minlength=len(counts))
    starts = np.concatenate([[0], np.cumsum(counts)[:-1]]) if len(counts) else np.zeros(0, np.int64)
    place = np.arange(len(owner)) - starts[owner] - np.maximum(counts - longest, 0)[owner]
    kept = place >= 0
    made = np.full((len(counts) + 1, longest), PADDING_ID, np.int64)  # the last is of a missing text
    encoded = flat.dictionary_encode()
    ids = (
        encode(encoded.dictionary)[encoded.indices.to_numpy(zero_copy_only=False)]
        if len(flat)
        else np.zeros(0, np.int64)
    )
    made[owner[kept], place[kept]] = ids[kept] + (field << FIELD_BITS)
    return made[texts.codes]
