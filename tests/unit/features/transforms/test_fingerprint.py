"""FarmHash's Fingerprint64. Python's implementation is the oracle here, TensorFlow's in test_keras_layers.py."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from elasticdl.errors import PermanentError
from elasticdl.features import Hashing
from elasticdl.features.analysis import NATIVE_CORE
from elasticdl.features.preprocessing import standalone
from elasticdl.features.transforms.fingerprint import EMPTY_TEXT, fingerprints, hash_buckets
from tests import native

native.require(NATIVE_CORE)

from elasticdl.features import native_core  # noqa: E402

LENGTHS = (0, 1, 3, 4, 7, 8, 16, 17, 32, 33, 64, 65, 128, 129, 300)


def test_the_buckets_of_the_example_are_those_of_tensorflow() -> None:
    assert hash_buckets(pa.array(["A", "B", "C", "D", "E"]), 3).tolist() == [1, 0, 1, 1, 2]


@given(texts=st.lists(st.binary(max_size=200)), kind=st.sampled_from([pa.binary(), pa.large_binary()]))
def test_fingerprints_are_those_of_the_implementation_in_python(texts: list[bytes], kind: Any) -> None:
    assert fingerprints(pa.array(texts, kind)).tolist() == [standalone.fingerprint(text) for text in texts]


@pytest.mark.parametrize("length", range(300))
def test_a_text_of_any_length_has_the_fingerprint_of_the_implementation_in_python(length: int) -> None:
    text = bytes(7 * index % 256 for index in range(length))

    assert fingerprints(pa.array([text])).tolist() == [standalone.fingerprint(text)]


@pytest.mark.parametrize("length", LENGTHS)
def test_the_fingerprint_of_a_text_depends_on_nothing_around_it(length: int) -> None:
    text = ("Zürich " * 60)[:length]
    alone = fingerprints(pa.array([text]))[0]

    among = fingerprints(pa.array(["x", text, "ü" * 50, None, text]))
    assert among[1] == among[4] == alone
    assert fingerprints(pa.array(["x", text]).slice(1))[0] == alone
    assert fingerprints(pa.chunked_array([["x"], [text]]))[1] == alone
    assert fingerprints(pa.array([text], pa.large_string()).dictionary_encode())[0] == alone


def test_texts_with_a_dictionary_have_the_fingerprints_of_plain_texts() -> None:
    texts = pa.array([None if number % 7 == 0 else str(number % 50) for number in range(10_000)])

    np.testing.assert_array_equal(fingerprints(texts.dictionary_encode()), fingerprints(texts))


def test_an_empty_array_has_no_fingerprints_and_a_null_counts_as_the_empty_text() -> None:
    assert fingerprints(pa.array([], pa.string())).tolist() == []
    assert fingerprints(pa.array([None, ""], pa.string())).tolist() == [int(EMPTY_TEXT)] * 2
    assert standalone.fingerprint(b"") == EMPTY_TEXT


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@pytest.mark.parametrize(
    ("offsets", "reason"), [([0, 2, 1], "not decrease"), ([-1, 1], "not decrease"), ([0, 9], "with the letters")]
)
def test_texts_with_wrong_offsets_are_refused(dtype: Any, offsets: list[int], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        native_core.fingerprints(np.zeros(4, np.uint8), np.array(offsets, dtype))


def test_hashing_without_the_native_core_says_how_to_build_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "elasticdl.features.native_core")
    monkeypatch.delattr("elasticdl.features.native_core")
    monkeypatch.setitem(sys.modules, "elasticdl.features._native", None)
    monkeypatch.delattr("elasticdl.features._native")

    with pytest.raises(PermanentError, match=r"Hashing, IndexLookup and Cross need the native core.*compiler"):
        Hashing(3)(["A"])
