"""Columns with special values, and a comparison of results: for tests that compare frameworks with the definition."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

from elasticdl.features import (
    Clip,
    Cross,
    DateParts,
    Discretization,
    FieldIds,
    Hashing,
    IndexLookup,
    LogRound,
    LogSquare,
    MissingIndicator,
    Normalizer,
    Ragged,
    RoundIdentity,
    Sparse,
    ToNumber,
    Transform,
)
from elasticdl.features.transforms.date_parts import PARTS

NUMBER_TRANSFORMS: list[Transform] = [
    Normalizer(0.1, 3.0),
    Normalizer(-1e30, 1e-30),
    Normalizer(0.0, -7e30),
    Discretization([-1, 0, 0.1, 0.7, 1e10]),
    Discretization([-5e-324, 1e-40, 1e300]),
    LogRound(20, base=2),
    LogRound(9, default_value=-1, base=4),
    LogRound(50, default_value=3),
    LogRound(10**6, base=1.05),
    RoundIdentity(5, default_value=2),
    LogSquare(default_value=-7),
    Clip(-0.1, 0.7),
    Clip(1e-310, 1e39),
    MissingIndicator(),
    MissingIndicator(-1),
    ToNumber("float32", 1),
    ToNumber("float64", 1),
    ToNumber("int32", 1),
    ToNumber("int64", 1),
    DateParts(PARTS),
]
WHOLE_NUMBER_TRANSFORMS: list[Transform] = [
    *NUMBER_TRANSFORMS,
    Hashing(7),
    Hashing(2**62),
    IndexLookup(["7", "-1", "x", "007", str(-(2**63))], 3),
    IndexLookup([], 2),
    FieldIds(5),
    DateParts(PARTS, format="%y%m%d%H"),
    DateParts(["year", "second"], format="%Y%m%d%H%M%S"),
]
TEXT_TRANSFORMS: list[Transform] = [
    Hashing(7),
    Hashing(2**62),
    IndexLookup(["a", "ä", "a,b", "7"], 3),
    IndexLookup([""], 2),
    MissingIndicator("a"),
]

# Where results change, and the numbers beside.
_EDGES = [*LogRound(20, base=2).tables["edges"], *LogSquare().tables["edges"][:30], 0.1, 0.7, 1e10, 2.0, -1.0, 0.5, 2.5]
_NEAR = [float(np.nextafter(edge, to)) for edge in _EDGES for to in (-np.inf, edge, np.inf)]
_HUGE = [2.0**63, -(2.0**63), 2.0**31, -(2.0**31), 1e300, -1e300, 2.0**62, 0.0, -0.0, 5e-324, 2.0**-126, 2.0**-1022]
_WHOLE = [0, 1, -1, 7, 2**63 - 1, -(2**63), 2**53 + 1, 2**24 + 1, 14102123, 10**18, 2**48, 2**31, -(2**31) - 1]

DOUBLES = st.floats() | st.sampled_from(_NEAR) | st.sampled_from(_HUGE)
SINGLES = st.floats(width=32) | st.sampled_from([float(np.float32(edge)) for edge in _NEAR])
WHOLES = st.integers(-(2**63), 2**63 - 1) | st.sampled_from(_WHOLE) | st.integers(-5, 10_000)
TEXTS = st.text(max_size=80) | st.sampled_from(["", "a", "ä", "7", "a,b", "||", "a|b|c", "日本語" * 30, "\0"])


@dataclass(frozen=True)
class Column:
    """The same values dense, ragged and sparse."""

    flat: NDArray[Any]
    lengths: list[int]

    @property
    def splits(self) -> NDArray[np.int64]:
        return np.concatenate([[0], np.cumsum(self.lengths)]).astype(np.int64)

    @property
    def square(self) -> NDArray[Any]:
        return self.flat[: len(self.flat) // 2 * 2].reshape(-1, 2)

    @property
    def ragged(self) -> Ragged:
        return Ragged(self.flat, self.splits)

    @property
    def sparse(self) -> Sparse:
        """A value in every second place of its row."""
        rows = np.repeat(np.arange(len(self.lengths)), self.lengths)
        positions = 2 * (np.arange(len(self.flat)) - np.repeat(self.splits[:-1], self.lengths))
        return Sparse(self.flat, np.stack([rows, positions], 1).astype(np.int64), (len(self.lengths), 200))


@st.composite
def columns(draw: st.DrawFn, values: st.SearchStrategy[Any], dtype: Any) -> Column:
    lengths = draw(st.lists(st.integers(0, 4), min_size=1, max_size=5))
    size = sum(lengths)
    return Column(np.array(draw(st.lists(values, min_size=size, max_size=size)), dtype), lengths)


NUMBER_COLUMNS = columns(DOUBLES, np.float64) | columns(SINGLES, np.float32)
WHOLE_COLUMNS = columns(WHOLES, np.int64) | columns(st.integers(-(2**31), 2**31 - 1), np.int32)
TEXT_COLUMNS = columns(TEXTS, object)

CROSS = Cross(2**61)


def assert_same(left: Any, right: Any) -> None:
    """Of one type and shape, and the same to the bit; every NaN is the same."""
    left, right = np.asarray(left), np.asarray(right)
    assert left.dtype == right.dtype and left.shape == right.shape
    if left.dtype.kind == "f":
        np.testing.assert_array_equal(np.isnan(left), np.isnan(right))
        bits = f"i{left.dtype.itemsize}"
        left, right = (np.where(np.isnan(each), 0, each).view(bits) for each in (left, right))
    np.testing.assert_array_equal(left, right)


def texts(values: Any) -> list[bytes]:
    """Text of any kind as bytes."""
    items = values.to_pylist() if hasattr(values, "to_pylist") else np.asarray(values).tolist()
    return [value.encode() if isinstance(value, str) else value for value in items]
