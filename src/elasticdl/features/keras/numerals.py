"""Numbers as text in TensorFlow: the shortest that is read as the same number, as Python writes it.

`elasticdl.features.raw.text_of` is the definition. A number halfway between two shortest texts (as 2⁻⁴⁴) may have the
other one here.
"""

from __future__ import annotations

from typing import Any

from elasticdl.features.keras.ops import flushed
from elasticdl.keras.runtime import tf

_WHOLE = 2.0**53  # from here on floats are whole numbers with gaps
_SCIENTIFIC = 1e16  # from here on Python writes an exponent
_MOST_DIGITS = 17


def written(numbers: Any) -> Any:
    """The text of each float64; "" for NaN. A subnormal one is zero."""
    numbers = flushed(numbers)
    is_missing = tf.math.is_nan(numbers)
    size = tf.abs(numbers)
    is_whole = tf.equal(tf.floor(numbers), numbers) & (size < _WHOLE)
    is_plain = is_whole | is_missing
    whole = tf.strings.as_string(tf.cast(tf.where(is_whole, numbers, 0.0), tf.int64))
    texts = tf.cond(tf.reduce_all(is_plain), lambda: whole, lambda: tf.where(is_plain, whole, _shortest(numbers)))
    return tf.where(is_missing, "", texts)


def _shortest(numbers: Any) -> Any:
    size = tf.abs(numbers)
    is_large = size >= _SCIENTIFIC
    found = tf.fill(tf.shape(numbers), "")
    for digits in range(_MOST_DIGITS, 0, -1):
        plain = tf.strings.as_string(numbers, precision=digits, shortest=True)
        scientific = tf.strings.as_string(numbers, precision=digits - 1, scientific=True)
        text = tf.where(is_large & tf.math.is_finite(numbers), scientific, plain)
        readable = tf.where(tf.math.is_nan(numbers), "0", text)
        found = tf.where(tf.equal(tf.strings.to_number(readable, tf.float64), numbers), text, found)
    is_between = (size >= _WHOLE) & ~is_large
    between = tf.strings.as_string(tf.cast(tf.where(is_between, numbers, 0.0), tf.int64)) + ".0"
    return tf.where(is_between, between, found)
