"""A front as a Keras layer gives what it gives in NumPy, to the bit, and its numbers have Python's text."""

from __future__ import annotations

import math
import sys
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elasticdl.features.preprocessing.raw_columns import format_number
from tests.properties import examples
from tests.unit.features.preprocessing.test_preprocessor import EVERYTHING, ROWS, batch, front

pytest.importorskip("tensorflow")

from elasticdl.keras.features import ops
from elasticdl.keras.features.preprocessor import PreprocessorLayer
from elasticdl.keras.runtime import tf

OWN = EVERYTHING.replace("like=t", "num_bins=50")


@cache
def compiled(text: str) -> Any:
    """In a graph, as it is exported."""
    layer = PreprocessorLayer(front(text))
    return tf.function(layer, input_signature=[layer.input_specs], autograph=False)


def flushed(number: float) -> float:
    return 0.0 if abs(number) <= sys.float_info.min else number


def raw(rows: list[dict[str, Any]]) -> dict[str, Any]:
    numbers = [math.nan if row["n"] is None else row["n"] for row in rows]
    texts = {name: tf.constant([row[name] or "" for row in rows]) for name in ("t", "d", "s")}
    return {"n": tf.constant(numbers, tf.float64), **texts}


@pytest.mark.parametrize("text", [EVERYTHING, OWN], ids=["like another", "ids of its own"])
@given(rows=ROWS)
@settings(max_examples=examples(60))
def test_the_layer_computes_the_same_bits_as_the_preprocessor(text: str, rows: list[dict[str, Any]]) -> None:
    expected, computed = front(text).encode(batch(rows)), compiled(text)(raw(rows))

    assert computed.keys() == expected.keys()
    for name, array in expected.items():
        assert computed[name].dtype.as_numpy_dtype == array.dtype
        np.testing.assert_array_equal(computed[name].numpy(), array, err_msg=name)


NUMBERS = st.floats(allow_nan=False) | st.integers(-1000, 1000).map(lambda power: 2.0**power)


@given(st.lists(NUMBERS, min_size=1, max_size=20))
@settings(max_examples=examples(60))
def test_numbers_are_written_as_python_does(numbers: list[float]) -> None:
    texts = ops.format_numbers(tf.constant(numbers, tf.float64)).numpy().tolist()

    assert [text.decode() for text in texts] == [format_number(flushed(number)) for number in numbers]


@pytest.mark.parametrize(
    "number",
    [
        0.1,
        -0.0,
        1e16,
        9.1e15,
        2.0**53,
        12345678901234568.0,
        1.5e-5,
        0.0001,
        1e22,
        -1.25e300,
        1 / 3,
        math.inf,
        -math.inf,
    ],
)
def test_the_forms_of_numbers_are_those_of_python(number: float) -> None:
    assert ops.format_numbers(tf.constant([number, math.nan], tf.float64)).numpy().tolist() == [
        format_number(number).encode(),
        b"",
    ]
