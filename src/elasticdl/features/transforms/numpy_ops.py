"""The operations in NumPy and Arrow, which define the results of the other frameworks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from elasticdl.errors import DataError
from elasticdl.features.transforms import calendar, fingerprint
from elasticdl.features.transforms.ops import Ops, ValueKind

if TYPE_CHECKING:
    from elasticdl.features.transforms.categorical import IndexLookup
    from elasticdl.features.transforms.date_parts import DateParts
    from elasticdl.features.transforms.numeric import ToNumber


Numbers = NDArray[Any]


class NumpyOps:
    """Numbers are NumPy's, text is Arrow's; both flat."""

    def kind(self, values: Any) -> ValueKind:
        if not isinstance(values, np.ndarray):
            return "text"
        if values.dtype.kind == "f":
            return "single" if values.dtype.itemsize <= 4 else "double"
        return "whole"

    def float32(self, numbers: Numbers) -> Numbers:
        return _flush_subnormals(numbers.astype(np.float32, copy=False))

    def float64(self, numbers: Numbers) -> Numbers:
        exact = self.float32(numbers) if self.kind(numbers) == "single" else numbers  # subnormal in its own type
        return _flush_subnormals(exact.astype(np.float64, copy=False))

    def int64(self, numbers: Numbers) -> Numbers:
        return numbers.astype(np.int64, copy=False)

    def cast(self, numbers: Numbers, name: str) -> Numbers:
        return numbers.astype(name, copy=False)

    def where(self, condition: Any, if_true: Any, if_false: Any) -> Numbers:
        numbers: Numbers = np.where(condition, if_true, if_false)
        return numbers

    def is_nan(self, floats: Numbers) -> Any:
        return np.isnan(floats)

    def rint(self, floats: Numbers) -> Numbers:
        return np.rint(floats)

    def floor(self, floats: Numbers) -> Numbers:
        return np.floor(floats)

    def divide(self, floats: Numbers, by: Numbers) -> Numbers:
        quotients: Numbers = floats / by
        return quotients

    def count_not_above(self, table: Numbers, numbers: Numbers) -> Numbers:
        return np.searchsorted(table, numbers, side="right").astype(np.int64, copy=False)

    def equals_text(self, texts: Any, text: str) -> Any:
        import pyarrow.compute as pc

        plain = decode_dictionary(texts)
        return pc.equal(plain, _scalar_like(plain, text)).fill_null(text == "").to_numpy(zero_copy_only=False)

    def stack(self, columns: list[Numbers]) -> Numbers:
        return np.stack(columns, axis=-1)

    def hash_buckets(self, values: Any, bins: int) -> Numbers:
        return fingerprint.hash_buckets(as_text(values), bins)

    def hash_joined_buckets(self, columns: list[Any], separator: str, bins: int) -> Numbers:
        import pyarrow as pa
        import pyarrow.compute as pc

        texts = [decode_dictionary(as_text(column)).cast(pa.binary()).fill_null(b"") for column in columns]
        return fingerprint.hash_buckets(pc.binary_join_element_wise(*texts, separator.encode()), bins)

    def lookup_index(self, values: Any, lookup: IndexLookup, tables: Mapping[str, Any]) -> Numbers:
        """Each distinct value is looked up once."""
        import pyarrow as pa

        texts = as_text(values)
        encoded = texts if pa.types.is_dictionary(texts.type) else texts.dictionary_encode()
        distinct = encoded.dictionary
        positions = lookup.find(pa.concat_arrays([distinct, pa.array([""], distinct.type)]))  # a null is the empty text
        codes = encoded.indices.cast(pa.int64()).fill_null(len(distinct)).to_numpy(zero_copy_only=False)
        by_code: Numbers = positions[codes]
        return by_code

    def parse_numbers(self, texts: Any, to: ToNumber) -> Numbers:
        return parse_numbers(decode_dictionary(texts), to)

    def parse_dates(self, texts: Any, dates: DateParts) -> list[Numbers]:
        return parse_dates(decode_dictionary(texts), dates)


NUMPY_OPS: Ops = NumpyOps()


def as_text(values: Any) -> Any:
    """Returns text unchanged, and whole numbers as their decimal texts. DataError for floats."""
    import pyarrow as pa

    if not isinstance(values, np.ndarray):
        return values
    if values.dtype.kind == "f":
        raise DataError(
            f"expected text or whole numbers. Received: {values.dtype}; "
            "the text of a float is not unique: use ToNumber('int64', -1) or Discretization before"
        )
    return pa.array(values).cast(pa.string())


def decode_dictionary(texts: Any) -> Any:
    import pyarrow as pa

    return texts.dictionary_decode() if pa.types.is_dictionary(texts.type) else texts


def _scalar_like(texts: Any, text: str) -> Any:
    """Returns `text` as a scalar of the type of `texts`."""
    import pyarrow as pa

    is_bytes = pa.types.is_binary(texts.type) or pa.types.is_large_binary(texts.type)
    return pa.scalar(text.encode() if is_bytes else text, texts.type)


def round_constant(number: Any, dtype: Any) -> Numbers:
    """Converts constants to `dtype` as values are: what it cannot hold is infinite, and subnormal numbers are zero."""
    with np.errstate(over="ignore", under="ignore"):
        return _flush_subnormals(np.asarray(number, np.float64).astype(dtype))


def _flush_subnormals(floats: Numbers) -> Numbers:
    """Makes subnormal numbers zero, and every zero positive."""
    tiny = np.abs(floats) <= np.finfo(floats.dtype).tiny
    return np.where(tiny, floats.dtype.type(0), floats) if tiny.any() else floats


def parse_numbers(texts: Any, to: ToNumber) -> NDArray[Any]:
    """Parses texts as `to` says. DataError names the first text that is not a number."""
    import pyarrow as pa
    import pyarrow.compute as pc

    trimmed, is_there = _trim_texts(texts)
    present = trimmed.filter(pa.array(is_there))
    _check_pattern(present, to.pattern, f"numbers of {to.out_type}")
    try:
        read = pc.replace_substring_regex(present, r"^\+", "").cast(getattr(pa, to.out_type)())
    except pa.ArrowInvalid as exc:
        raise DataError(f"expected numbers of {to.out_type}: {exc}") from exc
    numbers = np.full(len(texts), to.default_value, to.out_type)
    numbers[is_there] = read.to_numpy(zero_copy_only=False)
    if not to.is_whole:
        tiny = np.abs(numbers) <= np.finfo(numbers.dtype).tiny
        numbers[tiny] = 0
    return numbers


def parse_dates(texts: Any, form: DateParts) -> list[NDArray[Any]]:
    """Returns whether each text has a date, then year, month, day, hour, minute and second.

    DataError names the first text that is not a date.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    trimmed, is_there = _trim_texts(texts)
    _check_pattern(trimmed.filter(pa.array(is_there)), form.pattern, f"dates as {form.format or 'ISO 8601'}")
    if not len(texts):
        return [is_there, *(np.zeros(0, np.int64),) * 6]
    template = np.frombuffer(form.template.encode(), np.uint8)
    size = len(template)
    # Each text is cut to the length of the template; what a text lacks is taken from the template.
    cut = pc.utf8_rpad(pc.utf8_slice_codeunits(trimmed, 0, size), size, "\0").cast(pa.binary())
    letters = np.frombuffer(b"".join(cut.to_pylist()), np.uint8).reshape(-1, size)
    lengths = pc.utf8_length(trimmed).to_numpy(zero_copy_only=False)
    digits = np.where(np.arange(size) < lengths[:, np.newaxis], letters, template).astype(np.int64) - ord("0")
    read = {}
    for piece in form.directive_spans:
        powers = 10 ** np.arange(piece.width - 1, -1, -1)
        read[piece.directive] = digits[:, piece.start : piece.start + piece.width] @ powers
    civil = form.calendar_fields(read, np.zeros(len(texts), np.int64))
    if len(wrong := np.flatnonzero(~calendar.is_valid_date(*civil))):
        raise DataError(f"expected dates as {form.format or 'ISO 8601'}. Received: {trimmed[int(wrong[0])].as_py()!r}")
    return [is_there, *civil]


def _trim_texts(texts: Any) -> tuple[Any, NDArray[np.bool_]]:
    import pyarrow as pa
    import pyarrow.compute as pc

    try:
        plain = texts.cast(pa.string()).fill_null("")
    except pa.ArrowInvalid as exc:
        raise DataError(f"expected text in UTF-8: {exc}") from exc
    trimmed = pc.ascii_trim_whitespace(plain)
    return trimmed, pc.not_equal(trimmed, "").to_numpy(zero_copy_only=False)


def _check_pattern(texts: Any, pattern: str, expected: str) -> None:
    import pyarrow.compute as pc

    is_right = pc.match_substring_regex(texts, f"^({pattern})$")
    if not pc.all(is_right).as_py() and len(texts):
        wrong = texts.filter(pc.invert(is_right))[0].as_py()
        raise DataError(f"expected {expected}. Received: {wrong!r}")
