"""The definitions, in NumPy and Arrow: what each gives, and what it refuses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from elasticdl.errors import DataError
from elasticdl.features import (
    Clip,
    ConcatenateWithOffset,
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
    Sequence,
    Sparse,
    ToNumber,
    ToRagged,
    ToSparse,
    Transform,
)
from elasticdl.features.transforms.base import ElementwiseTransform

NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("transformation", "values", "expected"),
    [
        (Discretization([0, 1, 2]), [-INF, -0.1, 0.0, 0.9, 1.0, 2.0, INF], [0, 0, 1, 1, 2, 3, 3]),
        (LogRound(16, base=2), [1.2, 1.6, 0.2, 3.1, 100], [0, 1, 0, 2, 7]),
        (LogRound(5, default_value=9, base=2), [100, 0, -1, NAN, INF, 1], [9, 9, 9, 9, 9, 0]),
        (LogRound(9, base=4), [2, 8, 32], [0, 2, 2]),  # halves go to the even neighbour
        (LogRound(9), [np.e, np.e**2, 1.0], [1, 2, 0]),
        (RoundIdentity(5), [1.2, 1.6, 0.2, 3.1, 4.9], [1, 2, 0, 3, 0]),
        (RoundIdentity(5, default_value=4), [NAN, INF, -INF, -1, 0.5, 2.5], [4, 4, 4, 4, 0, 2]),
        (Hashing(3), ["A", "B", "C", "D", "E"], [1, 0, 1, 1, 2]),
        (IndexLookup(["A", "B", "C"]), ["A", "C", "Z", "", None], [0, 2, 3, 3, 3]),
        (IndexLookup(["7", "12"]), [12, 7, 8], [1, 0, 2]),
        (LogSquare(), [3, 100, 2, 1, 0, -2, NAN, INF], [1, 21, -1, -2, -3, -5, 0, 1906]),
        (LogSquare(default_value=7), [NAN, -INF], [7, -(2**31) - 3]),
        (FieldIds(1), [0, 7, -1], [1 << 48, (1 << 48) + 7, -1]),
        (ToNumber("int64", 5), ["12", "", None, " -3 ", "+4"], [12, 5, 5, -3, 4]),
        (ToNumber("int64", 5), [NAN, 1e300, -1e300, -1.9], [5, 2**63 - 1, -(2**63), -1]),
        (ToNumber("int32", 5), [NAN, 1e300, -1e300, 2.5], [5, 2**31 - 1, -(2**31), 2]),
    ],
)
def test_a_transform_maps_a_column_to_the_expected_values(
    transformation: Transform, values: list[Any], expected: list[int]
) -> None:
    result = transformation(values)

    assert result.tolist() == expected
    assert result.dtype == (np.int32 if transformation == ToNumber("int32", 5) else np.int64)


def test_normalizer_computes_in_float32() -> None:
    normalized = Normalizer(0.1, 3.0)([0.7, NAN, INF, 16777217])

    expected = (np.array([0.7, NAN, INF, 16777216], np.float32) - np.float32(0.1)) / np.float32(3.0)
    np.testing.assert_array_equal(normalized, expected, strict=True)


def test_subnormal_numbers_become_zero() -> None:
    normalized = Normalizer(0.0, 4.0)(np.array([1e-40, -1e-40, 2e-38, 1e-37], np.float32))

    assert normalized[:3].tolist() == [0.0, 0.0, 0.0] and not np.signbit(normalized).any() and normalized[3] > 0
    assert Discretization([0])([-5e-324]).tolist() == [1]


def test_an_edge_is_in_the_same_bin_as_float32_and_as_float64() -> None:
    edges = [0.1, 0.3, 0.7, 1.1]

    assert Discretization(edges)(np.array(edges)).tolist() == [1, 2, 3, 4]
    assert Discretization(edges)(np.array(edges, np.float32)).tolist() == [1, 2, 3, 4]


def test_clipping_keeps_nan_and_the_type() -> None:
    np.testing.assert_array_equal(Clip(-1, 1)([NAN, -5.0, 0.5, INF]), [NAN, -1, 0.5, 1])
    assert Clip(0, 1)(np.zeros(1, np.float32)).dtype == np.float32
    assert Clip(0, 1)([5]).tolist() == [1.0]


@pytest.mark.parametrize(
    "values",
    [
        np.array([["A", "B"], ["C", "D"]]),
        np.array([[b"A", b"B"], [b"C", b"D"]]),
        np.array([["A", "B"], ["C", "D"]], object),
        [["A", "B"], ["C", "D"]],
    ],
)
def test_text_of_any_kind_keeps_its_shape(values: Any) -> None:
    assert Hashing(3)(values).tolist() == [[1, 0], [1, 1]]


@pytest.mark.parametrize(
    "values",
    [
        pa.array(["A", None, "C"]),
        pa.array(["A", None, "C"], pa.large_string()),
        pa.array(["A", None, "C"]).dictionary_encode(),
        pa.chunked_array([["A"], [None, "C"]]),
        pa.array(["x", "A", None, "C"]).slice(1),
        pa.array([b"A", None, b"C"]),
        pa.array(["A", None, "C"], pa.string_view()),
    ],
    ids=lambda values: str(values.type),
)
def test_arrow_text_of_any_kind_is_taken(values: Any) -> None:
    assert Hashing(3)(values).tolist() == [1, Hashing(3)([""])[0], 1]
    assert IndexLookup(["C", ""])(values).tolist() == [2, 1, 0]


def test_nulls_of_numbers_are_nan() -> None:
    column = pa.array([1, None, 3])

    np.testing.assert_array_equal(Normalizer(0, 1)(column), np.array([1, NAN, 3], np.float32))
    assert MissingIndicator()(column).tolist() == [0, 1, 0]
    assert MissingIndicator("-")(pa.array(["", None, "-", "x"])).tolist() == [1, 1, 1, 0]


def test_ragged_and_sparse_columns_stay_so() -> None:
    ragged = Hashing(3)([["A", "B"], [], ["E"]])
    assert isinstance(ragged, Ragged)
    assert ragged.to_list() == [[1, 0], [], [2]]
    assert Discretization([2])(pa.array([[1, 2], None, [3]])).to_list() == [[0, 1], [], [1]]

    sparse = Normalizer(1, 1)(Sparse(np.array([1.0, 2.0]), np.array([[0, 1], [1, 0]]), (2, 2)))
    assert isinstance(sparse, Sparse)
    assert sparse.to_dense(fill=9).tolist() == [[9, 0], [1, 9]]


def test_a_cross_tells_where_one_value_ends() -> None:
    cross = Cross(2**40)

    first, second = cross([["a", "ab"], ["bc", "c"]])
    assert first != second
    assert cross([[1, 2], ["x", "y"]]).tolist() == cross([["1", "2"], ["x", "y"]]).tolist()
    assert cross([[["a"], ["b", "c"]], [[1], [2, 3]]]).to_list() == [
        cross([["a"], [1]]).tolist(),
        cross([["b", "c"], [2, 3]]).tolist(),
    ]
    with pytest.raises(DataError, match="columns of the same shape"):
        cross([["a"], ["b", "c"]])
    with pytest.raises(DataError, match="a list of two or more columns"):
        cross(["a"])


@pytest.mark.parametrize(
    "dates",
    [
        ["2014-10-21 07:30:05", "2016-02-29T23:59:59.5Z", "1969-12-31", "", None],
        np.array(["2014-10-21T07:30:05", "2016-02-29T23:59:59", "1969-12-31", "NaT", "NaT"], "datetime64[s]"),
        [1413876605, 1456790399, -86400, NAN, NAN],
    ],
    ids=["text", "dates", "seconds"],
)
def test_parts_of_dates_are_extracted(dates: Any) -> None:
    parts = DateParts(["year", "month", "day", "yearday", "weekday", "hour", "minute", "second"])

    fields = parts(dates).tolist()

    assert fields[0] == [2014, 10, 21, 293, 1, 7, 30, 5]
    assert fields[1] == [2016, 2, 29, 59, 0, 23, 59, 59]
    assert fields[2] == [1969, 12, 31, 364, 2, 0, 0, 0]
    assert fields[3] == fields[4] == [-1] * 8


def test_dates_are_read_by_their_format() -> None:
    parts = DateParts(["year", "hour"], format="%y%m%d%H")

    assert parts(["14102123", "", "70010100"]).tolist() == [[2014, 23], [-1, -1], [1970, 0]]
    assert parts([14102123, 1010203, 14132100, -1]).tolist() == [[2014, 23], [2001, 3], [-1, -1], [-1, -1]]
    assert DateParts("day", format="%d/%m/%Y")(["31/12/1999"]).tolist() == [[31]]


def test_sequences_are_split_and_truncated() -> None:
    assert ToRagged(sep="|")(["a|b", None, "|c"]).to_list() == [["a", "b"], [], ["c"]]
    assert ToRagged(ignore_value="-")([["a", "-"], ["b,", "-"]]).to_list() == [["a"], ["b", ""]]
    assert ToRagged()([[1.5, -1.0]]).to_list() == [[1.5, -1.0]]
    assert Sequence("|", 2)(["a|b|c", ""]).to_list() == [["b", "c"], []]
    assert Sequence("|", 2, keep="first")(["a|b|c", ""]).to_list() == [["a", "b"], []]
    assert Ragged(np.array([], np.int64), np.array([0, 0])).to_padded(2).tolist() == [[-1, -1]]


def test_to_sparse_leaves_out_the_ignored_value() -> None:
    sparse = ToSparse()([["a", ""], ["", "b"]])

    assert sparse.values.to_pylist() == ["a", "b"] and sparse.indices.tolist() == [[0, 0], [1, 1]]
    assert ToSparse()(sparse) is sparse
    assert ToSparse()([[0.0, 2.0]]).indices.tolist() == [[0, 1]]


def test_columns_of_all_kinds_are_concatenated() -> None:
    joined = ConcatenateWithOffset([0, 10])

    assert joined([[1, -1], [3, 4]]).tolist() == [[1, 13], [-1, 14]]
    assert joined([[[1], []], [[2, 3], [4]]]).to_list() == [[1, 12, 13], [14]]
    sparse = joined([ToSparse()([[1, -1], [2, 3]]), ToSparse()([[-1], [5]])])
    assert sparse.to_dense(fill=-1).tolist() == [[1, -1, -1], [2, 3, 15]]
    with pytest.raises(DataError, match=r"expected 2 columns, as many as offsets. Received: 1"):
        joined([[[1]]])
    with pytest.raises(DataError, match="all dense, all ragged or all sparse"):
        joined([[[1], [2, 3]], [1, 2]])


@pytest.mark.parametrize(
    ("make", "complaint"),
    [
        (lambda: Normalizer(0, 0), "a divisor that is finite and not zero in float32. Received: 0"),
        (lambda: Normalizer(0, 1e-60), "finite and not zero in float32"),
        (lambda: Normalizer(NAN, 1), "a subtractor that is finite in float32"),
        (lambda: Discretization([]), "rising finite numbers"),
        (lambda: Discretization([1, 1]), "rising finite numbers"),
        (lambda: LogRound(0), "num_bins from 1 to 2\\^62. Received: 0"),
        (lambda: LogRound(3, base=1), "a base above 1"),
        (lambda: RoundIdentity(-1), "num_buckets from 1"),
        (lambda: Hashing(None), "num_bins from 1 to 2\\^62. Received: None"),  # type: ignore[arg-type]
        (lambda: IndexLookup(["a", "a"]), "every value once. Received: 'a' more than once"),
        (lambda: IndexLookup([1]), "a vocabulary of text. Received: 1"),  # type: ignore[list-item]
        (lambda: IndexLookup(["a"], 0), "num_oov_tokens from 1"),
        (lambda: ToNumber("string", 0), "an out_type of float32, float64, int32, int64. Received: 'string'"),
        (lambda: ToNumber("int64", 0.5), "a default_value that is int64"),
        (lambda: ToRagged(""), "a separator of one character"),
        (lambda: Sequence("", 1), "a separator of one character"),
        (lambda: Sequence(",", 1, keep="middle"), "first or last"),  # type: ignore[arg-type]
        (lambda: DateParts(["age"]), "expected parts of year"),
        (lambda: DateParts("day", format="%d %B"), "expected directives of"),
        (lambda: DateParts("day", format="%d"), "one year, %m and %d"),
        (lambda: Clip(2, 1), "minimum <= maximum"),
        (lambda: FieldIds(1 << 15), "a field from 0 to 32767"),
    ],
)
def test_invalid_arguments_are_refused(make: Any, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        make()


@pytest.mark.parametrize(
    ("transformation", "values", "complaint"),
    [
        (Hashing(3), [1.5], "expected text or whole numbers. Received: float64"),
        (IndexLookup(["a"]), [1.5], "expected text or whole numbers"),
        (ToNumber("float32", 0), ["1.5", "0x10"], "expected numbers of float32. Received: '0x10'"),
        (ToNumber("int32", 0), ["2147483648"], "expected numbers of int32"),
        (FieldIds(1), [1.5], "expected whole numbers. Received: double"),
        (DateParts("day"), ["2015-02-29"], "expected dates as ISO 8601. Received: '2015-02-29'"),
        (DateParts("day"), ["yesterday"], "Received: 'yesterday'"),
        (Sequence(",", 1), [1], "expected a column of text"),
        (ToRagged(ignore_value="x"), [1], "an ignore_value that is whole"),
        (Hashing(3), [{"a": 1}], "a column of numbers, of text or of dates"),
        (Hashing(3), ["a", 1], "a column of numbers, of text or of dates"),
    ],
)
def test_columns_that_do_not_fit_are_refused(transformation: Transform, values: Any, complaint: str) -> None:
    column = np.array(values, object) if values == ["a", 1] else values

    with pytest.raises(DataError, match=complaint):
        transformation(column)


def test_a_vocabulary_may_be_a_file(tmp_path: Path) -> None:
    path = tmp_path / "vocabulary.txt"
    path.write_text("A\nä\n\n", encoding="utf-8")

    assert IndexLookup(path) == IndexLookup(str(path)) == IndexLookup(["A", "ä", ""])
    path.write_text("A\nA\n")
    with pytest.raises(ValueError, match=r"vocabulary.txt: expected every value once"):
        IndexLookup(path)
    with pytest.raises(DataError, match="expected a file of UTF-8"):
        IndexLookup(tmp_path / "nowhere.txt")


def test_a_definition_that_computes_nothing_cannot_be_made() -> None:
    class Empty(ElementwiseTransform):
        pass

    with pytest.raises(TypeError, match="compute"):
        Empty()  # type: ignore[abstract]
