"""FarmHash's Fingerprint64: TensorFlow is the oracle in test_keras_faces.py; here is how texts come to it."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from elasticdl.features.transforms import fingerprint
from elasticdl.features.transforms.fingerprint import fingerprints, hash_buckets

LENGTHS = (0, 1, 3, 4, 7, 8, 16, 17, 32, 33, 64, 65, 128, 129, 300)


def test_the_original_example() -> None:
    assert hash_buckets(pa.array(["A", "B", "C", "D", "E"]), 3).tolist() == [1, 0, 1, 1, 2]


@pytest.mark.parametrize("length", LENGTHS)
def test_a_text_has_one_fingerprint_wherever_it_stands(length: int) -> None:
    text = ("Zürich " * 60)[:length]
    alone = fingerprints(pa.array([text]))[0]

    among = fingerprints(pa.array(["x", text, "ü" * 50, None, text]))
    assert among[1] == among[4] == alone
    assert fingerprints(pa.array(["x", text]).slice(1))[0] == alone
    assert fingerprints(pa.array([text], pa.large_string()).dictionary_encode())[0] == alone


def test_batches_that_repeat_and_batches_that_do_not_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    few = pa.array([None if n % 7 == 0 else str(n % 50) for n in range(10_000)])
    many = pa.array([str(n) for n in range(20_000)])

    whole = fingerprints(few), fingerprints(many)
    monkeypatch.setattr(fingerprint, "DICTIONARY_THRESHOLD", 10**9)
    monkeypatch.setattr(fingerprint, "CHUNK_TEXTS", 1000)

    np.testing.assert_array_equal(fingerprints(few), whole[0])
    np.testing.assert_array_equal(fingerprints(many), whole[1])


def test_no_texts_have_no_fingerprints() -> None:
    assert fingerprints(pa.array([], pa.string())).tolist() == []
    assert fingerprints(pa.array([None, ""], pa.string())).tolist() == [int(fingerprint.K2)] * 2
