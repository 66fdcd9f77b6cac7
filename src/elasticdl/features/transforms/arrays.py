"""The operations in NumPy and Arrow: the definition."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from elasticdl.errors import DataError
from elasticdl.features import fingerprint
from elasticdl.features.transforms.interface import Kind, Ops

if TYPE_CHECKING:
    from elasticdl.features.transforms.date_parts import DateParts
    from elasticdl.features.transforms.index_lookup import IndexLookup
    from elasticdl.features.transforms.to_number import ToNumber

Numbers = NDArray[Any]


class Arrays:
    """Numbers are NumPy's, text is Arrow's; both flat."""

    def kind(self, values: Any) -> Kind:
        if not isinstance(values, np.ndarray):
            return "text"
        if values.dtype.kind == "f":
            return "single" if values.dtype.itemsize <= 4 else "double"
        return "whole"

    def float32(self, numbers: Numbers) -> Numbers:
        return _flushed(numbers.astype(np.float32, copy=False))

    def float64(self, numbers: Numbers) -> Numbers:
        exact = self.float32(numbers) if self.kind(numbers) == "single" else numbers  # subnormal in its own type
        return _flushed(exact.astype(np.float64, copy=False))

    def int64(self, numbers: Numbers) -> Numbers:
        return numbers.astype(np.int64, copy=False)

    def cast(self, numbers: Numbers, name: str) -> Numbers:
        return numbers.astype(name, copy=False)

    def where(self, condition: Any, one: Any, other: Any) -> Numbers:
        found: Numbers = np.where(condition, one, other)
        return found

    def is_nan(self, floats: Numbers) -> Any:
        return np.isnan(floats)

    def rint(self, floats: Numbers) -> Numbers:
        return np.rint(floats)

    def floor(self, floats: Numbers) -> Numbers:
        return np.floor(floats)

    def quotient(self, floats: Numbers, by: Numbers) -> Numbers:
        found: Numbers = floats / by
        return found

    def rank(self, table: Numbers, numbers: Numbers) -> Numbers:
        return np.searchsorted(table, numbers, side="right").astype(np.int64, copy=False)

    def is_text(self, texts: Any, text: str) -> Any:
        import pyarrow.compute as pc

        plain = decoded(texts)
        return pc.equal(plain, _like(plain, text)).fill_null(text == "").to_numpy(zero_copy_only=False)

    def stack(self, columns: list[Numbers]) -> Numbers:
        return np.stack(columns, axis=-1)

    def buckets(self, values: Any, bins: int) -> Numbers:
        return fingerprint.buckets(text_of(values), bins)

    def joined_buckets(self, columns: list[Any], separator: str, bins: int) -> Numbers:
        import pyarrow as pa
        import pyarrow.compute as pc

        texts = [decoded(text_of(column)).cast(pa.binary()).fill_null(b"") for column in columns]
        return fingerprint.buckets(pc.binary_join_element_wise(*texts, separator.encode()), bins)

    def index(self, values: Any, lookup: IndexLookup, tables: Mapping[str, Any]) -> Numbers:
        """Each distinct value is looked up once."""
        import pyarrow as pa

        texts = text_of(values)
        encoded = texts if pa.types.is_dictionary(texts.type) else texts.dictionary_encode()
        distinct = encoded.dictionary
        found = lookup.find(pa.concat_arrays([distinct, pa.array([""], distinct.type)]))  # a null is the empty text
        codes = encoded.indices.cast(pa.int64()).fill_null(len(distinct)).to_numpy(zero_copy_only=False)
        ids: Numbers = found[codes]
        return ids

    def parsed(self, texts: Any, to: ToNumber) -> Numbers:
        from elasticdl.features.transforms import parsing

        return parsing.numbers(decoded(texts), to)

    def read_dates(self, texts: Any, dates: DateParts) -> list[Numbers]:
        from elasticdl.features.transforms import parsing

        return parsing.dates(decoded(texts), dates)


OPS: Ops = Arrays()


def text_of(values: Any) -> Any:
    """Text as it is, whole numbers as decimals. DataError for floats, whose text is nobody's contract."""
    import pyarrow as pa

    if not isinstance(values, np.ndarray):
        return values
    if values.dtype.kind == "f":
        raise DataError(
            f"expected text or whole numbers. Received: {values.dtype}; "
            "numbers with fractions or gaps have no one text: use ToNumber('int64', -1) or Discretization before"
        )
    return pa.array(values).cast(pa.string())


def decoded(texts: Any) -> Any:
    import pyarrow as pa

    return texts.dictionary_decode() if pa.types.is_dictionary(texts.type) else texts


def _like(texts: Any, text: str) -> Any:
    """`text` as a value of the type of `texts`."""
    import pyarrow as pa

    is_bytes = pa.types.is_binary(texts.type) or pa.types.is_large_binary(texts.type)
    return pa.scalar(text.encode() if is_bytes else text, texts.type)


def rounded(number: Any, dtype: Any) -> Numbers:
    """Constants as `dtype`, as values of that type are taken: what is beyond it is infinite, what is subnormal zero."""
    with np.errstate(over="ignore", under="ignore"):
        return _flushed(np.asarray(number, np.float64).astype(dtype))


def _flushed(floats: Numbers) -> Numbers:
    """Subnormal numbers are zero, and every zero is the positive one."""
    tiny = np.abs(floats) <= np.finfo(floats.dtype).tiny
    return np.where(tiny, floats.dtype.type(0), floats) if tiny.any() else floats
