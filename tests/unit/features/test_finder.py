"""Where texts stand in a vocabulary: the native core and the dictionary say the same."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from elasticdl.features.sql import COUNTER
from elasticdl.features.transforms import IndexLookup, categorical
from tests import native

native.require(COUNTER)

from elasticdl.features.sql import _counter  # noqa: E402

TEXTS = st.lists(st.one_of(st.text(max_size=20), st.sampled_from(["", "a", "ab", "a\0", "12345678", "123456789"])))


@given(vocabulary=TEXTS.map(lambda texts: list(dict.fromkeys(texts))), texts=TEXTS, cut=st.integers(0, 3))
def test_native_and_plain_agree_with_a_list(vocabulary: list[str], texts: list[str], cut: int) -> None:
    asked = pa.array([*vocabulary, *texts], pa.string())[cut:]  # a slice has an offset
    expected = [vocabulary.index(text) if text in vocabulary else -1 for text in asked.to_pylist()]

    native = categorical.native_finder(vocabulary)
    plain = categorical.dict_finder({value.encode(): place for place, value in enumerate(vocabulary)})

    assert native(asked).tolist() == plain(asked).tolist() == expected


def test_a_hundred_thousand_values_are_all_found() -> None:
    vocabulary = [f"value {number}" for number in range(100_000)]
    find = categorical.native_finder(vocabulary)

    assert np.array_equal(find(pa.array(vocabulary)), np.arange(100_000))
    assert set(find(pa.array([f"valu {number}" for number in range(1000)])).tolist()) == {-1}


def test_without_the_native_core_a_dictionary_does_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(categorical, "has_counter", lambda: False)
    lookup = IndexLookup(["A", "B"])

    assert lookup(["B", "C", None, "A"]).tolist() == [1, 2, 2, 0]


@pytest.mark.parametrize(
    ("letters", "ends"), [(b"ab", [3]), (b"ab", [2, 1]), (b"", [-1])], ids=["too far", "back", "below"]
)
def test_a_vocabulary_that_ends_nowhere_is_refused(letters: bytes, ends: list[int]) -> None:
    with pytest.raises(ValueError, match="ends go up"):
        _counter.Places(letters, np.array(ends, np.int64))


@pytest.mark.parametrize(("offsets", "why"), [([0, 2, 1], "go up"), ([-1, 1], "go up"), ([0, 9], "with the letters")])
def test_texts_that_lie_nowhere_are_refused(offsets: list[int], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        _counter.Places(b"ab", np.array([2], np.int64)).find(np.zeros(4, np.uint8), np.array(offsets, np.int32))
