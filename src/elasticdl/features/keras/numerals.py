"""Numbers as text in TensorFlow: the shortest that is read as the same number, as Python writes it.

`elasticdl.features.raw.text_of` is the definition.
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
    is_whole = tf.equal(tf.floor(numbers), numbers) & (tf.abs(numbers) < _WHOLE)
    is_plain = is_whole | is_missing
    whole = tf.strings.as_string(tf.cast(tf.where(is_whole, numbers, 0.0), tf.int64))
    others = tf.where(is_plain, tf.constant(0.5, tf.float64), numbers)
    texts = tf.cond(tf.reduce_all(is_plain), lambda: whole, lambda: tf.where(is_plain, whole, _shortest(others)))
    return tf.where(is_missing, "", texts)


def _shortest(numbers: Any) -> Any:
    """Of numbers that are no NaN."""
    size = tf.abs(numbers)
    is_large = (size >= _SCIENTIFIC) & tf.math.is_finite(numbers)
    found = tf.fill(tf.shape(numbers), "")
    for digits in range(_MOST_DIGITS, 0, -1):
        plain = tf.strings.as_string(numbers, precision=digits, shortest=True)
        scientific = tf.strings.as_string(numbers, precision=digits - 1, scientific=True)
        found = _if_same(tf.where(is_large, scientific, plain), numbers, found)
        if digits == _MOST_DIGITS:
            found = _if_same(_rounded_up(numbers), numbers, found)
    is_between = (size >= _WHOLE) & (size < _SCIENTIFIC)
    between = tf.strings.as_string(tf.cast(tf.where(is_between, numbers, 0.0), tf.int64)) + ".0"
    return tf.where(is_between, between, found)


def _if_same(texts: Any, numbers: Any, otherwise: Any) -> Any:
    return tf.where(tf.equal(tf.strings.to_number(texts, tf.float64), numbers), texts, otherwise)


def _rounded_up(numbers: Any) -> Any:
    """With one digit less than all, and that digit raised.

    Next to a power of two numbers are closer below than above: the nearest text of 16 digits may be read as another
    number, and the one above it as the right one. No such number lies where Python writes no exponent.
    """
    size = tf.where(tf.math.is_finite(numbers), tf.abs(numbers), 1.0)
    text = tf.strings.as_string(size, precision=_MOST_DIGITS - 1, scientific=True)  # 5.9604644775390625e-08
    cut = tf.strings.substr(text, 0, 1) + tf.strings.substr(text, 2, _MOST_DIGITS - 2)
    raised = tf.strings.as_string(tf.strings.to_number(cut, tf.int64) + 1)
    exponent = tf.strings.regex_replace(text, ".*e", "e")
    mantissa = tf.strings.substr(raised, 0, 1) + "." + tf.strings.substr(raised, 1, _MOST_DIGITS - 2)
    is_small = size < 1e-4
    sign = tf.where(numbers < 0, "-", "")
    return tf.where(is_small | (size >= _SCIENTIFIC), sign + mantissa + exponent, "nan")
