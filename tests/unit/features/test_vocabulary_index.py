"""Positions of texts in a vocabulary, which the native core looks up."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from elasticdl.features.analysis import NATIVE_CORE
from elasticdl.features.transforms.categorical import vocabulary_finder
from tests import native

native.require(NATIVE_CORE)

from elasticdl.features.native_core import VocabularyIndex  # noqa: E402

TEXTS = st.lists(st.one_of(st.text(max_size=20), st.sampled_from(["", "a", "ab", "a\0", "12345678", "123456789"])))


@given(vocabulary=TEXTS.map(lambda texts: list(dict.fromkeys(texts))), texts=TEXTS, offset=st.integers(0, 3))
def test_positions_are_those_in_a_list(vocabulary: list[str], texts: list[str], offset: int) -> None:
    values = pa.array([*vocabulary, *texts], pa.string())[offset:]  # a slice has an offset
    expected = [vocabulary.index(text) if text in vocabulary else -1 for text in values.to_pylist()]

    find = vocabulary_finder(vocabulary)

    assert find(values).tolist() == expected


def test_all_of_a_hundred_thousand_values_are_found() -> None:
    vocabulary = [f"value {number}" for number in range(100_000)]
    find = vocabulary_finder(vocabulary)

    assert np.array_equal(find(pa.array(vocabulary)), np.arange(100_000))
    assert set(find(pa.array([f"valu {number}" for number in range(1000)])).tolist()) == {-1}


@pytest.mark.parametrize(
    ("letters", "ends"), [(b"ab", [3]), (b"ab", [2, 1]), (b"", [-1])], ids=["too far", "back", "below"]
)
def test_a_vocabulary_with_wrong_ends_is_refused(letters: bytes, ends: list[int]) -> None:
    with pytest.raises(ValueError, match="ends must not decrease"):
        VocabularyIndex(letters, np.array(ends, np.int64))


@pytest.mark.parametrize(
    ("offsets", "reason"), [([0, 2, 1], "not decrease"), ([-1, 1], "not decrease"), ([0, 9], "with the letters")]
)
def test_texts_with_wrong_offsets_are_refused(offsets: list[int], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        VocabularyIndex(b"ab", np.array([2], np.int64)).find(np.zeros(4, np.uint8), np.array(offsets, np.int32))
