"""Raw columns of a batch as encoders take them: numbers with NaN for missing ones, texts by their distinct values."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from elasticdl.errors import DataError
from elasticdl.features.layout import MISSING_ID
from elasticdl.features.statistics import ColumnKind


@dataclass(eq=False)
class TextColumn:
    """A column of texts: its distinct values, and the index of each row's value, -1 for a missing one."""

    distinct: pa.StringArray
    codes: NDArray[np.int64]

    @property
    def is_missing(self) -> NDArray[np.bool_]:
        return self.codes < 0

    def map_distinct(self, encode: Callable[[Any], NDArray[np.int64]]) -> NDArray[np.int64]:
        """Returns the ids of all rows, computed from ids of the distinct values."""
        ids = np.append(encode(self.distinct), MISSING_ID)
        return ids[self.codes]  # -1 takes the last one, MISSING_ID

    def to_array(self) -> pa.StringArray:
        """Returns one text for each row; a missing one is empty."""
        texts = pa.concat_arrays([self.distinct, pa.array([""], pa.string())])
        return texts.take(pa.array(np.where(self.codes < 0, len(self.distinct), self.codes)))


class RawColumns:
    """The columns of a batch. Each is converted once, however many encoders take it."""

    def __init__(self, batch: pa.RecordBatch) -> None:
        self._batch = batch
        self._numbers: dict[str, NDArray[np.float64]] = {}
        self._texts: dict[tuple[str, ColumnKind], TextColumn] = {}
        self._cache: dict[tuple[Any, ...], NDArray[np.int64]] = {}

    def __len__(self) -> int:
        return int(self._batch.num_rows)

    def numbers(self, name: str) -> NDArray[np.float64]:
        """Returns a column of numbers. A subnormal one is zero, as in TensorFlow. Raises DataError for other values."""
        if name not in self._numbers:
            self._numbers[name] = _parse_numbers(self._column(name), name)
        return self._numbers[name]

    def texts(self, name: str, kind: ColumnKind) -> TextColumn:
        """Returns a column of texts. The text of a number is that of its value: 5, 5.0 and 05 are all "5"."""
        if (name, kind) not in self._texts:
            column = self._column(name)
            if kind is ColumnKind.NUMBER:
                column = _format_numbers(self.numbers(name))
            self._texts[name, kind] = _encode_distinct(column)
        return self._texts[name, kind]

    def cached(self, key: tuple[Any, ...], compute: Callable[[], NDArray[np.int64]]) -> NDArray[np.int64]:
        """Returns the ids under `key`, computed once for all encoders that need the same."""
        if key not in self._cache:
            self._cache[key] = compute()
        return self._cache[key]

    def _column(self, name: str) -> pa.Array:
        index = self._batch.schema.get_field_index(name)
        if index < 0:
            raise DataError(f"no column {name!r} in the data; there are {', '.join(self._batch.schema.names[:20])}")
        return self._batch.column(index)


def _parse_numbers(column: pa.Array, name: str) -> NDArray[np.float64]:
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if _is_text(column.type):
        stripped = pc.utf8_trim_whitespace(column)
        column = pc.if_else(pc.equal(stripped, ""), pa.scalar(None, stripped.type), stripped)
    try:
        numbers = column.cast(pa.float64())
    except pa.ArrowInvalid as exc:
        raise DataError(f"column {name!r}: expected numbers: {str(exc).splitlines()[0]}") from exc
    values = np.asarray(numbers.fill_null(math.nan).to_numpy(zero_copy_only=False), np.float64)
    is_subnormal = (np.abs(values) <= sys.float_info.min) & (values != 0)
    return np.where(is_subnormal, values * 0, values) if is_subnormal.any() else values


def _encode_distinct(column: pa.Array) -> TextColumn:
    if not pa.types.is_dictionary(column.type):
        column = (column if column.type == pa.string() else column.cast(pa.string())).dictionary_encode()
    distinct = column.dictionary.cast(pa.string())
    codes = column.indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
    empty = pc.index(distinct, pa.scalar("")).as_py()
    if empty >= 0:
        codes = np.where(codes == empty, -1, codes)
    return TextColumn(distinct, codes)


def _format_numbers(values: NDArray[np.float64]) -> pa.Array:
    """Formats numbers as texts; a missing one is null."""
    missing = np.isnan(values)
    is_integer = np.floor(values) == values
    if bool(np.all(missing | (is_integer & (np.abs(values) < 2**53)))):
        return pa.array(np.where(missing, 0, values).astype(np.int64), mask=missing).cast(pa.string())
    return pa.array([None if math.isnan(value) else format_number(value) for value in values.tolist()], pa.string())


def format_number(number: float) -> str:
    is_integer = math.isfinite(number) and number == math.floor(number) and abs(number) < 2**53
    return str(int(number)) if is_integer else repr(number)


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or kind == pa.string_view())
