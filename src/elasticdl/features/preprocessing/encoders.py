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
    """Encodes one column. `transform` is the word of features.yaml; "number" also covers normalizer and clip."""

    model_config = ConfigDict(frozen=True, extra="forbid", ignored_types=(cached_property,))

    name: str
    column: str


class NumberEncoder(_ColumnEncoder):
    """(f(x) - subtractor) / divisor, where f is ln(1 + x - shift) for `log`; `missing_value` for a missing value."""

    transform: Literal["number"] = "number"
    log: bool = False
    shift: float = 0.0
    minimum: float | None = None  # the value is clipped first
    maximum: float | None = None
    subtractor: float = 0.0
    divisor: float = 1.0
    missing_value: float = 0.0

    @cached_property
    def _normalizer(self) -> Normalizer:
        return Normalizer(self.subtractor, self.divisor)

    def encode(self, columns: RawColumns) -> Floats:
        values = columns.numbers(self.column)
        if self.minimum is not None or self.maximum is not None:
            values = np.clip(values, self.minimum, self.maximum)
        if self.log:
            values = np.log1p(np.maximum(values - self.shift, 0.0))
        normalized = self._normalizer.transform_arrays(values)
        return np.where(np.isnan(values), np.float32(self.missing_value), normalized)


class MissingIndicatorEncoder(_ColumnEncoder):
    """1 if the value is missing, else 0."""

    transform: Literal["missing_indicator"] = "missing_indicator"
    kind: ColumnKind = ColumnKind.TEXT

    def encode(self, columns: RawColumns) -> Floats:
        if self.kind is ColumnKind.NUMBER:
            return np.isnan(columns.numbers(self.column)).astype(np.float32)
        return columns.texts(self.column, ColumnKind.TEXT).is_missing.astype(np.float32)


class DiscretizationEncoder(_ColumnEncoder):
    """The range of a number."""

    transform: Literal["discretization"] = "discretization"
    bins: tuple[float, ...]

    @cached_property
    def _discretization(self) -> Discretization:
        return Discretization(self.bins)

    @property
    def size(self) -> int:
        return FIRST_ID + len(self.bins) + 1

    def encode(self, columns: RawColumns) -> Ids:
        values = columns.numbers(self.column)
        return np.where(np.isnan(values), MISSING_ID, FIRST_ID + self._discretization.transform_arrays(values))


class LogSquareEncoder(_ColumnEncoder):
    """Results from `minimum` to `maximum` have ids of their own; those beyond share the id of the nearer end."""

    transform: Literal["log_square"] = "log_square"
    minimum: int = -16
    maximum: int = 1906  # floor(ln(2^63)²)

    @property
    def size(self) -> int:
        return FIRST_ID + 1 + self.maximum - self.minimum

    def encode(self, columns: RawColumns) -> Ids:
        return columns.cached((self.transform, self.column, self.minimum, self.maximum), lambda: self._compute(columns))

    def _compute(self, columns: RawColumns) -> Ids:
        values = columns.numbers(self.column)
        squares = np.clip(_LOG_SQUARE.transform_arrays(values), self.minimum, self.maximum)
        return np.where(np.isnan(values), MISSING_ID, FIRST_ID + squares - self.minimum)


class LogRoundEncoder(_ColumnEncoder):
    """The rounded logarithm of a number."""

    transform: Literal["log_round"] = "log_round"
    num_bins: int
    base: float | None = None
    edges: tuple[float, ...]  # where the rounded logarithm changes, for `standalone`

    @cached_property
    def _log_round(self) -> LogRound:
        return LogRound(self.num_bins, UNKNOWN_ID - FIRST_ID, self.base)  # values out of range are unknown

    @property
    def size(self) -> int:
        return FIRST_ID + self.num_bins

    def encode(self, columns: RawColumns) -> Ids:
        values = columns.numbers(self.column)
        return np.where(np.isnan(values), MISSING_ID, FIRST_ID + self._log_round.transform_arrays(values))


class RoundIdentityEncoder(_ColumnEncoder):
    """The rounded number itself."""

    transform: Literal["round_identity"] = "round_identity"
    num_buckets: int

    @property
    def size(self) -> int:
        return FIRST_ID + self.num_buckets

    def encode(self, columns: RawColumns) -> Ids:
        values = columns.numbers(self.column)
        rounded = RoundIdentity(self.num_buckets, UNKNOWN_ID - FIRST_ID).transform_arrays(values)
        return np.where(np.isnan(values), MISSING_ID, FIRST_ID + rounded)


class IndexLookupEncoder(_ColumnEncoder):
    """Ids 1 … `num_oov_tokens` are for values out of the vocabulary; the ids after them are indices in it."""

    transform: Literal["index_lookup"] = "index_lookup"
    kind: ColumnKind = ColumnKind.TEXT
    vocabulary: tuple[str, ...]
    num_oov_tokens: int = 1

    @property
    def size(self) -> int:
        return 1 + self.num_oov_tokens + len(self.vocabulary)

    @cached_property
    def _lookup(self) -> IndexLookup:
        return IndexLookup(self.vocabulary, self.num_oov_tokens)

    def encode_texts(self, texts: Any) -> Ids:
        indices: Ids = self._lookup.transform_arrays(texts)
        size = len(self.vocabulary)
        return np.where(indices < size, indices + 1 + self.num_oov_tokens, indices - size + 1)

    def encode(self, columns: RawColumns) -> Ids:
        texts = columns.texts(self.column, self.kind)
        if self.num_oov_tokens > 1:
            return texts.map_distinct(self.encode_texts)
        # As `encode_texts`, but without fingerprints: all other values have one id, FIRST_ID - 1.
        return texts.map_distinct(lambda distinct: self._lookup.find(distinct) + FIRST_ID)


class HashingEncoder(_ColumnEncoder):
    """The hash of a value's text."""

    transform: Literal["hashing"] = "hashing"
    kind: ColumnKind = ColumnKind.TEXT
    num_bins: int

    @property
    def size(self) -> int:
        return FIRST_ID + self.num_bins

    def encode_texts(self, texts: Any) -> Ids:
        ids: Ids = FIRST_ID + Hashing(self.num_bins).transform_arrays(texts)
        return ids

    def encode(self, columns: RawColumns) -> Ids:
        return columns.texts(self.column, self.kind).map_distinct(self.encode_texts)


class DatePartEncoder(_ColumnEncoder):
    """One part of a date."""

    transform: Literal["date_parts"] = "date_parts"
    part: str

    @property
    def size(self) -> int:
        return FIRST_ID + DATE_PART_SIZES[self.part]

    def encode(self, columns: RawColumns) -> Ids:
        def encode_part(texts: Any) -> Ids:
            part = DateParts((self.part,)).transform_arrays(texts)[:, 0]
            return np.where(part < 0, UNKNOWN_ID, FIRST_ID + part)

        return columns.texts(self.column, ColumnKind.DATE).map_distinct(encode_part)


class CrossEncoder(BaseModel):
    """The values of several columns together. The cross is missing if all of its columns are."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    transform: Literal["cross"] = "cross"
    name: str
    columns: tuple[str, ...]
    kinds: tuple[ColumnKind, ...]
    num_bins: int

    @property
    def size(self) -> int:
        return FIRST_ID + self.num_bins

    def encode(self, columns: RawColumns) -> Ids:
        texts = [columns.texts(name, kind) for name, kind in zip(self.columns, self.kinds, strict=True)]
        crossed = Cross(self.num_bins).transform_arrays([column.to_array() for column in texts])
        return np.where(np.all([column.is_missing for column in texts], axis=0), MISSING_ID, FIRST_ID + crossed)


FieldEncoder = Annotated[
    DiscretizationEncoder
    | LogSquareEncoder
    | LogRoundEncoder
    | RoundIdentityEncoder
    | IndexLookupEncoder
    | HashingEncoder
    | DatePartEncoder
    | CrossEncoder,
    Field(discriminator="transform"),
]
AnyNumberEncoder = Annotated[NumberEncoder | MissingIndicatorEncoder, Field(discriminator="transform")]


class SequenceEncoder(BaseModel):
    """Splits a text into values and encodes the last `max_length` of them as ids of one field."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    column: str
    sep: str
    max_length: int
    like: str  # the name of the field whose ids these are; "" for ids of its own
    encoder: Annotated[IndexLookupEncoder | HashingEncoder, Field(discriminator="transform")]

    def encode(self, columns: RawColumns, field: int) -> Ids:
        return encode_padded(
            columns.texts(self.column, ColumnKind.TEXT), self.sep, self.max_length, self.encoder.encode_texts, field
        )


def encode_padded(
    texts: TextColumn, sep: str, max_length: int, encode: Callable[[Any], NDArray[np.int64]], field: int
) -> NDArray[np.int64]:
    """Returns [rows, max_length]: the last values of each row as ids of `field`, then -1. Empty values are left out."""
    lists = pc.split_pattern(texts.distinct, sep)
    counts = pc.list_value_length(lists).to_numpy(zero_copy_only=False).astype(np.int64)
    flat = lists.flatten()
    owner = np.repeat(np.arange(len(counts)), counts)
    is_full = pc.not_equal(flat, "").to_numpy(zero_copy_only=False)
    owner, flat = owner[is_full], flat.filter(pa.array(is_full))
    counts = np.bincount(owner, minlength=len(counts))
    starts = np.concatenate([[0], np.cumsum(counts)[:-1]]) if len(counts) else np.zeros(0, np.int64)
    position = np.arange(len(owner)) - starts[owner] - np.maximum(counts - max_length, 0)[owner]
    is_kept = position >= 0
    padded = np.full((len(counts) + 1, max_length), PADDING_ID, np.int64)  # the last row is for a missing text
    encoded = flat.dictionary_encode()
    ids = (
        encode(encoded.dictionary)[encoded.indices.to_numpy(zero_copy_only=False)]
        if len(flat)
        else np.zeros(0, np.int64)
    )
    padded[owner[is_kept], position[is_kept]] = ids[is_kept] + (field << FIELD_BITS)
    return padded[texts.codes]
