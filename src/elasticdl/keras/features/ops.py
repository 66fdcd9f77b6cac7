"""The operations of transforms in TensorFlow, and texts of numbers as Python writes them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from elasticdl.errors import DataError
from elasticdl.features.transforms import calendar
from elasticdl.features.transforms.ops import Ops, ValueKind
from elasticdl.keras.runtime import tf

if TYPE_CHECKING:
    from elasticdl.features.transforms.categorical import IndexLookup
    from elasticdl.features.transforms.date_parts import DateParts
    from elasticdl.features.transforms.numeric import ToNumber


class TensorFlowOps:
    """See `Ops`."""

    def kind(self, values: Any) -> ValueKind:
        if values.dtype == tf.string:
            return "text"
        if values.dtype.is_floating:
            return "double" if values.dtype == tf.float64 else "single"
        return "whole"

    def float32(self, numbers: Any) -> Any:
        return flush_subnormals(tf.cast(numbers, tf.float32))

    def float64(self, numbers: Any) -> Any:
        exact = self.float32(numbers) if self.kind(numbers) == "single" else numbers
        return flush_subnormals(tf.cast(exact, tf.float64))

    def int64(self, numbers: Any) -> Any:
        return tf.cast(numbers, tf.int64)

    def cast(self, numbers: Any, name: str) -> Any:
        return tf.cast(numbers, name)

    def where(self, condition: Any, if_true: Any, if_false: Any) -> Any:
        # A Python number gets the type of the tensor beside it.
        dtype = if_true.dtype if tf.is_tensor(if_true) else if_false.dtype
        return tf.where(condition, tf.convert_to_tensor(if_true, dtype), tf.convert_to_tensor(if_false, dtype))

    def is_nan(self, floats: Any) -> Any:
        return tf.math.is_nan(floats)

    def rint(self, floats: Any) -> Any:
        return tf.round(floats)

    def floor(self, floats: Any) -> Any:
        return tf.floor(floats)

    def divide(self, floats: Any, by: Any) -> Any:
        # A graph replaces x / constant by x * (1 / constant), which is rounded twice, but not divide_no_nan.
        return tf.math.divide_no_nan(floats, by)

    def count_not_above(self, table: Any, numbers: Any) -> Any:
        counts = tf.searchsorted(table, tf.reshape(numbers, [-1]), side="right", out_type=tf.int64)
        return tf.reshape(counts, tf.shape(numbers))

    def equals_text(self, texts: Any, text: str) -> Any:
        return tf.equal(texts, text)

    def stack(self, columns: list[Any]) -> Any:
        return tf.stack(columns, -1)

    def hash_buckets(self, values: Any, bins: int) -> Any:
        return tf.strings.to_hash_bucket_fast(_as_text(values), bins)

    def hash_joined_buckets(self, columns: list[Any], separator: str, bins: int) -> Any:
        return tf.strings.to_hash_bucket_fast(
            tf.strings.join([_as_text(column) for column in columns], separator), bins
        )

    def lookup_index(self, values: Any, lookup: IndexLookup, tables: Mapping[str, Any]) -> Any:
        """`tables` holds the layer's lookup table of the vocabulary."""
        if not lookup.positions:
            return tf.fill(tf.shape(values), tf.constant(-1, tf.int64))
        return tables["vocabulary"].lookup(_as_text(values))

    def parse_numbers(self, texts: Any, to: ToNumber) -> Any:
        stripped = tf.strings.strip(texts)
        is_blank = tf.equal(stripped, "")
        safe = tf.where(is_blank, "0", stripped)
        with tf.control_dependencies([_assert_pattern(safe, to.pattern, f"numbers of {to.out_type}")]):
            numbers = tf.strings.to_number(tf.identity(safe), to.out_type)
        default = tf.constant(to.default_value, to.out_type)
        filled = tf.where(is_blank, default, numbers)
        return filled if to.is_whole else flush_subnormals(filled)

    def parse_dates(self, texts: Any, dates: DateParts) -> list[Any]:
        stripped = tf.strings.strip(texts)
        is_there = tf.not_equal(stripped, "")
        template = dates.template
        safe = tf.where(is_there, stripped, template)
        expected = f"dates as {dates.format or 'ISO 8601'}"
        with tf.control_dependencies([_assert_pattern(safe, dates.pattern, expected)]):
            lengths = tf.minimum(tf.strings.length(safe), len(template))
        # The template fills up what a text lacks; what it has beyond the template is a fraction of a second.
        missing = tf.strings.substr(tf.fill(tf.shape(safe), template), lengths, len(template) - lengths)
        filled = tf.strings.join([tf.strings.substr(safe, 0, len(template)), missing])
        read = {
            piece.directive: tf.strings.to_number(tf.strings.substr(filled, piece.start, piece.width), tf.int64)
            for piece in dates.directive_spans
        }
        civil = dates.calendar_fields(read, tf.zeros(tf.shape(safe), tf.int64))
        is_right = tf.reduce_all(calendar.is_valid_date(*civil))
        with tf.control_dependencies([tf.debugging.Assert(is_right, [f"expected {expected}. Received:", safe])]):
            return [is_there, *(tf.identity(part) for part in civil)]


TENSORFLOW_OPS: Ops = TensorFlowOps()


def flush_subnormals(floats: Any) -> Any:
    tiny = 2.0**-1022 if floats.dtype == tf.float64 else 2.0**-126
    return tf.where(tf.abs(floats) <= tf.constant(tiny, floats.dtype), tf.constant(0, floats.dtype), floats)


def _as_text(values: Any) -> Any:
    if values.dtype == tf.string:
        return values
    if values.dtype.is_floating:
        raise DataError(
            f"expected text or whole numbers. Received: {values.dtype.name}; "
            "the text of a float is not unique: use ToNumber('int64', -1) or Discretization before"
        )
    return tf.strings.as_string(tf.cast(values, tf.int64))


def _assert_pattern(texts: Any, pattern: str, expected: str) -> Any:
    is_right = tf.strings.regex_full_match(texts, pattern)
    return tf.debugging.Assert(
        tf.reduce_all(is_right), [f"expected {expected}. Received:", tf.boolean_mask(texts, ~is_right)]
    )


_MAX_EXACT_WHOLE = 2.0**53  # above it not every whole number is a float
_MIN_SCIENTIFIC = 1e16  # Python writes larger numbers with an exponent
_MAX_DIGITS = 17


def format_numbers(numbers: Any) -> Any:
    """Returns the text of each float64; "" for NaN, "0" for a subnormal number."""
    numbers = flush_subnormals(numbers)
    is_missing = tf.math.is_nan(numbers)
    is_whole = tf.equal(tf.floor(numbers), numbers) & (tf.abs(numbers) < _MAX_EXACT_WHOLE)
    is_plain = is_whole | is_missing
    whole_texts = tf.strings.as_string(tf.cast(tf.where(is_whole, numbers, 0.0), tf.int64))
    others = tf.where(is_plain, tf.constant(0.5, tf.float64), numbers)
    texts = tf.cond(
        tf.reduce_all(is_plain), lambda: whole_texts, lambda: tf.where(is_plain, whole_texts, _shortest_texts(others))
    )
    return tf.where(is_missing, "", texts)


def _shortest_texts(numbers: Any) -> Any:
    """Returns the shortest text of each number that is read as the same number. There must be no NaN."""
    size = tf.abs(numbers)
    is_large = (size >= _MIN_SCIENTIFIC) & tf.math.is_finite(numbers)
    texts = tf.fill(tf.shape(numbers), "")
    for digits in range(_MAX_DIGITS, 0, -1):
        plain = tf.strings.as_string(numbers, precision=digits, shortest=True)
        scientific = tf.strings.as_string(numbers, precision=digits - 1, scientific=True)
        texts = _keep_if_same(tf.where(is_large, scientific, plain), numbers, texts)
        if digits == _MAX_DIGITS:
            texts = _keep_if_same(_rounded_up(numbers), numbers, texts)
    is_between = (size >= _MAX_EXACT_WHOLE) & (size < _MIN_SCIENTIFIC)
    between = tf.strings.as_string(tf.cast(tf.where(is_between, numbers, 0.0), tf.int64)) + ".0"
    return tf.where(is_between, between, texts)


def _keep_if_same(texts: Any, numbers: Any, otherwise: Any) -> Any:
    return tf.where(tf.equal(tf.strings.to_number(texts, tf.float64), numbers), texts, otherwise)


def _rounded_up(numbers: Any) -> Any:
    """Returns the texts with one digit less than all, and the last digit raised by one.

    Next to a power of two, numbers are closer below than above: the nearest text of 16 digits may be read as another
    number, and the next text above it as the right one. All such numbers are written with an exponent.
    """
    size = tf.where(tf.math.is_finite(numbers), tf.abs(numbers), 1.0)
    text = tf.strings.as_string(size, precision=_MAX_DIGITS - 1, scientific=True)  # 5.9604644775390625e-08
    digits = tf.strings.substr(text, 0, 1) + tf.strings.substr(text, 2, _MAX_DIGITS - 2)
    raised = tf.strings.as_string(tf.strings.to_number(digits, tf.int64) + 1)
    exponent = tf.strings.regex_replace(text, ".*e", "e")
    mantissa = tf.strings.substr(raised, 0, 1) + "." + tf.strings.substr(raised, 1, _MAX_DIGITS - 2)
    is_small = size < 1e-4
    sign = tf.where(numbers < 0, "-", "")
    return tf.where(is_small | (size >= _MIN_SCIENTIFIC), sign + mantissa + exponent, "nan")
