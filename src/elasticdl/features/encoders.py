"""Treatments bound to statistics: each makes one field of ids, or one number, of a batch of raw columns.

They are the content of front.json, so that a few lines without ElasticDL can do the same (`served.py`).
"""

from __future__ import annotations

from functools import cached_property
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field

from elasticdl.features.layout import FIRST, MISSING, UNKNOWN
from elasticdl.features.raw import Columns
from elasticdl.features.statistics import Kind
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

PART_SIZES = {
    "year": 10_000, "month": 13, "day": 32, "yearday": 366, "weekday": 7, "hour": 24, "minute": 60, "second": 60,
}  # fmt: skip

_LOG_SQUARE = LogSquare()

Ids = NDArray[np.int64]
Floats = NDArray[np.float32]


class _Encoder(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", ignored_types=(cached_property,))

    name: str
    column: str


class NumberEncoder(_Encoder):
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

    def encode(self, columns: Columns) -> Floats:
        values = columns.numbers(self.column)
        if self.low is not None or self.high is not None:
            values = np.clip(values, self.low, self.high)
        if self.log:
            values = np.log1p(np.maximum(values - self.shift, 0.0))
        made = self._normalizer.on_arrays(values)
        return np.where(np.isnan(values), np.float32(self.missing), made)


class MissingEncoder(_Encoder):
    """1 where there is no value."""

    how: Literal["missing"] = "missing"
    kind: Kind = Kind.TEXT

    def encode(self, columns: Columns) -> Floats:
        if self.kind is Kind.NUMBER:
            return np.isnan(columns.numbers(self.column)).astype(np.float32)
        return columns.texts(self.column, Kind.TEXT).missing.astype(np.float32)


class BoundsEncoder(_Encoder):
    how: Literal["bounds"] = "bounds"
    bounds: tuple[float, ...]

    @cached_property
    def _discretization(self) -> Discretization:
        return Discretization(self.bounds)

    @property
    def size(self) -> int:
        return FIRST + len(self.bounds) + 1

    def encode(self, columns: Columns) -> Ids:
        values = columns.numbers(self.column)
        return np.where(np.isnan(values), MISSING, FIRST + self._discretization.on_arrays(values))


class LogSquareEncoder(_Encoder):
    """Numbers from `lowest` on have ids of their own; what is beyond shares the id of the end."""

    how: Literal["log_square"] = "log_square"
    lowest: int = -16
    highest: int = 1906  # floor(ln(2^63)²)

    @property
    def size(self) -> int:
        return FIRST + 1 + self.highest - self.lowest

    def encode(self, columns: Columns) -> Ids:
        return columns.once((self.how, self.column, self.lowest, self.highest), lambda: self._made(columns))

    def _made(self, columns: Columns) -> Ids:
        values = columns.numbers(self.column)
        made = np.clip(_LOG_SQUARE.on_arrays(values), self.lowest, self.highest)
        return np.where(np.isnan(values), MISSING, FIRST + made - self.lowest)


class LogRoundEncoder(_Encoder):
    how: Literal["log_round"] = "log_round"
    bins: int
    base: float | None = None
    edges: tuple[float, ...]  # where the rounded logarithm changes, for those who have no LogRound

    @cached_property
    def _log_round(self) -> LogRound:
        return LogRound(self.bins, UNKNOWN - FIRST, self.base)  # what is out of range is unknown

    @property
    def size(self) -> int:
        return FIRST + self.bins

    def encode(self, columns: Columns) -> Ids:
        values = columns.numbers(self.column)
        made = self._log_round.on_arrays(values)
        return np.where(np.isnan(values), MISSING, FIRST + made)


class RoundEncoder(_Encoder):
    how: Literal["round"] = "round"
    bins: int

    @property
    def size(self) -> int:
        return FIRST + self.bins

    def encode(self, columns: Columns) -> Ids:
        values = columns.numbers(self.column)
        made = RoundIdentity(self.bins, UNKNOWN - FIRST).on_arrays(values)
        return np.where(np.isnan(values), MISSING, FIRST + made)


class VocabularyEncoder(_Encoder):
    """Ids 1 … `unknown` are of values out of the vocabulary; those after them are places in it."""

    how: Literal["vocabulary"] = "vocabulary"
    kind: Kind = Kind.TEXT
    values: tuple[str, ...]
    unknown: int = 1

    @property
    def size(self) -> int:
        return 1 + self.unknown + len(self.values)

    @cached_property
    def _lookup(self) -> IndexLookup:
        return IndexLookup(self.values, self.unknown)

    def of(self, texts: Any) -> Ids:
        places: Ids = self._lookup.on_arrays(texts)
        known = len(self.values)
        return np.where(places < known, places + 1 + self.unknown, places - known + 1)

    def encode(self, columns: Columns) -> Ids:
        texts = columns.texts(self.column, self.kind)
        if self.unknown > 1:
            return texts.each(self.of)
        # As `of`, but without a fingerprint: others have one id, next to FIRST as -1 is to the first place.
        return texts.each(lambda distinct: self._lookup.find(distinct) + FIRST)


class HashEncoder(_Encoder):
    how: Literal["hash"] = "hash"
    kind: Kind = Kind.TEXT
    bins: int

    @property
    def size(self) -> int:
        return FIRST + self.bins

    def of(self, texts: Any) -> Ids:
        made: Ids = FIRST + Hashing(self.bins).on_arrays(texts)
        return made

    def encode(self, columns: Columns) -> Ids:
        return columns.texts(self.column, self.kind).each(self.of)


class DateEncoder(_Encoder):
    how: Literal["date"] = "date"
    part: str

    @property
    def size(self) -> int:
        return FIRST + PART_SIZES[self.part]

    def encode(self, columns: Columns) -> Ids:
        def part(texts: Any) -> Ids:
            found = DateParts((self.part,)).on_arrays(texts)[:, 0]
            return np.where(found < 0, UNKNOWN, FIRST + found)

        return columns.texts(self.column, Kind.DATE).each(part)


class CrossEncoder(BaseModel):
    """Missing where all of its columns are."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    how: Literal["cross"] = "cross"
    name: str
    columns: tuple[str, ...]
    kinds: tuple[Kind, ...]
    bins: int

    @property
    def size(self) -> int:
        return FIRST + self.bins

    def encode(self, columns: Columns) -> Ids:
        found = [columns.texts(name, kind) for name, kind in zip(self.columns, self.kinds, strict=True)]
        made = Cross(self.bins).on_arrays([one.whole() for one in found])
        return np.where(np.all([one.missing for one in found], axis=0), MISSING, FIRST + made)


FieldEncoder = Annotated[
    BoundsEncoder
    | LogSquareEncoder
    | LogRoundEncoder
    | RoundEncoder
    | VocabularyEncoder
    | HashEncoder
    | DateEncoder
    | CrossEncoder,
    Field(discriminator="how"),
]
AnyNumberEncoder = Annotated[NumberEncoder | MissingEncoder, Field(discriminator="how")]


class SequenceEncoder(BaseModel):
    """A text split into values, encoded as those of a field; the last `longest` of them."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    column: str
    sep: str
    longest: int
    like: str  # a field's name: its ids are this field's
    of: Annotated[VocabularyEncoder | HashEncoder, Field(discriminator="how")]

    def encode(self, columns: Columns, field: int) -> Ids:
        from elasticdl.features.sequences import padded

        return padded(columns.texts(self.column, Kind.TEXT), self.sep, self.longest, self.of.of, field)
