"""What the modules of torch give is what the definitions give, to the bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

from elasticdl.errors import DataError
from elasticdl.features import (
    ConcatenateWithOffset,
    Cross,
    DateParts,
    Hashing,
    LogRound,
    Ragged,
    Sequence,
    Sparse,
    ToNumber,
    ToRagged,
    ToSparse,
    Transform,
)
from elasticdl.features.statistics import ColumnKind, ColumnStatistics, Statistics
from tests.properties import examples
from tests.unit.features import hard_columns
from tests.unit.features.hard_columns import Column, assert_same

torch = pytest.importorskip("torch")
modules = pytest.importorskip("elasticdl.features.torch")


def tensor(values: Any) -> Any:
    return torch.from_numpy(np.ascontiguousarray(values))


def check(transformation: Transform, column: Column) -> None:
    assert_same(transformation(tensor(column.square)), transformation(column.square))
    pair = transformation((tensor(column.flat), tensor(column.splits)))
    assert_same(pair.values, transformation(column.ragged).values)
    nested = torch.nested.nested_tensor_from_jagged(tensor(column.flat), tensor(column.splits))
    assert_same(transformation(nested).values(), pair.values)
    sparse = column.sparse
    coo = torch.sparse_coo_tensor(tensor(sparse.indices.T), tensor(sparse.values), sparse.shape, check_invariants=True)
    assert_same(transformation(coo).coalesce().values(), transformation(sparse).values)
    module = modules.MODULES[type(transformation)].from_definition(transformation)
    assert_same(module(column.square), transformation(column.square))


@pytest.mark.parametrize("transformation", hard_columns.NUMBER_TRANSFORMS, ids=str)
@settings(max_examples=examples(12))
@given(column=hard_columns.NUMBER_COLUMNS)
@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_transforms_of_numbers_compute_the_same_bits(transformation: Transform, column: Column) -> None:
    check(transformation, column)


@pytest.mark.parametrize("transformation", hard_columns.WHOLE_NUMBER_TRANSFORMS, ids=str)
@settings(max_examples=examples(10))
@given(column=hard_columns.WHOLE_COLUMNS)
@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_transforms_of_whole_numbers_compute_the_same_bits(transformation: Transform, column: Column) -> None:
    check(transformation, column)


@pytest.mark.parametrize("transformation", hard_columns.TEXT_TRANSFORMS, ids=str)
@settings(max_examples=examples(10))
@given(column=hard_columns.TEXT_COLUMNS)
def test_transforms_of_text_take_arrays(transformation: Transform, column: Column) -> None:
    module = modules.MODULES[type(transformation)].from_definition(transformation)

    assert_same(module(column.square), transformation(column.square))
    result = module(column.ragged)
    assert_same(result.values, transformation(column.ragged).values)
    assert torch.is_tensor(result.splits)


@pytest.mark.parametrize("count", [2, 3, 4])
@settings(max_examples=examples(10))
@given(column=hard_columns.columns(hard_columns.WHOLES, np.int64))
def test_a_cross_of_whole_numbers(count: int, column: Column) -> None:
    crossed = [np.roll(column.flat, shift) for shift in range(count)]

    assert_same(hard_columns.CROSS([tensor(each) for each in crossed]), hard_columns.CROSS(crossed))
    pairs = [(tensor(each), tensor(column.splits)) for each in crossed]
    assert_same(hard_columns.CROSS(pairs).values, hard_columns.CROSS(crossed))


@settings(max_examples=examples(12))
@given(column=hard_columns.WHOLE_COLUMNS)
def test_dense_tensors_become_ragged_and_sparse(column: Column) -> None:
    for transformation in (ToRagged(), ToRagged(ignore_value=7)):
        result, expected = transformation(tensor(column.square)), transformation(column.square)
        assert_same(result.values, expected.values)
        assert_same(result.splits, expected.splits)
    result, expected = ToSparse()(tensor(column.square)), ToSparse()(column.square)
    assert_same(result.values(), expected.values)
    assert_same(result.indices().T, expected.indices)


@settings(max_examples=examples(12))
@given(column=hard_columns.columns(hard_columns.WHOLES, np.int64))
def test_columns_are_concatenated_with_offsets(column: Column) -> None:
    joined = ConcatenateWithOffset([3, 100])

    assert_same(
        joined([tensor(column.flat), tensor(column.square[:0].reshape(-1, 1))][:1] * 2), joined([column.flat] * 2)
    )
    result = joined([(tensor(column.flat), tensor(column.splits))] * 2)
    expected = joined([column.ragged] * 2)
    assert_same(result.values, expected.values)
    assert_same(result.splits, expected.splits)


def test_sparse_columns_are_concatenated() -> None:
    columns = [np.array([[1, -1], [2, 3]]), np.array([[-1, 4], [5, -1]])]

    result = ConcatenateWithOffset([0, 10])([ToSparse()(torch.from_numpy(column)) for column in columns])

    expected = ConcatenateWithOffset([0, 10])([ToSparse()(column) for column in columns])
    assert_same(result.values(), expected.values)
    assert_same(result.indices().T, expected.indices)


def test_text_goes_through_eagerly() -> None:
    assert modules.Hashing(3)(["A", "B", "C", "D", "E"]).tolist() == [1, 0, 1, 1, 2]
    assert modules.ToNumber("float32", -1)(["1.5", ""]).tolist() == [1.5, -1]
    pieces = modules.Sequence("|", 2)(["a|b|c", ""])
    assert isinstance(pieces, Ragged) and pieces.to_list() == [["b", "c"], []]
    assert modules.Hashing(100)(pieces).to_list() == [[22, 72], []]
    assert modules.DateParts("hour")(["2014-10-21 07:30"]).tolist() == [[7]]
    assert modules.Cross(1000)([["a", "ab"], ["bc", "c"]]).tolist() == [693, 234]
    assert modules.ToSparse()([["a", ""]]).values.to_pylist() == ["a"]


EXPORTED = [
    *(
        pytest.param(each, torch.tensor([[0.5, -1.0], [3e9, float("nan")]]), id=str(each))
        for each in hard_columns.NUMBER_TRANSFORMS[::5]
    ),
    *(
        pytest.param(each, torch.tensor([[0, -1], [7, 2**62]]), id=str(each))
        for each in hard_columns.WHOLE_NUMBER_TRANSFORMS[-6::2]
    ),
]


@pytest.mark.parametrize(("transformation", "values"), EXPORTED)
def test_numeric_modules_can_be_exported(transformation: Transform, values: Any) -> None:
    module = modules.MODULES[type(transformation)].from_definition(transformation)

    program = torch.export.export(module, (values,), dynamic_shapes=({0: torch.export.Dim.AUTO},)).module()

    assert_same(program(values), transformation(values.numpy()))


def test_a_cross_can_be_exported_up_to_three_columns() -> None:
    column = torch.arange(-3, 3)

    program = torch.export.export(modules.Cross(50), ([column] * 3,)).module()
    assert_same(program([column] * 3), Cross(50)([column.numpy()] * 3))
    with pytest.raises(Exception, match="at most 3 columns in a program to export"):
        torch.export.export(modules.Cross(50), ([column] * 4,))


@pytest.mark.parametrize("combiner", ["sum", "mean", "sqrtn"])
def test_an_embedding_leaves_out_what_is_no_id(combiner: Any) -> None:
    layer = modules.SparseEmbedding(5, 2, combiner=combiner)
    with torch.no_grad():
        layer.weight.copy_(torch.arange(10.0).reshape(5, 2))
    divisor = {"sum": 1.0, "mean": 2.0, "sqrtn": 2.0**0.5}[combiner]

    result = layer(torch.tensor([[1, 3, 0], [0, 0, -1]]))
    torch.testing.assert_close(result, torch.tensor([[8.0, 10.0], [0.0, 0.0]]) / divisor)
    ragged = layer((torch.tensor([0, 4, -1]), torch.tensor([0, 2, 3])))
    torch.testing.assert_close(ragged, torch.tensor([[8.0, 10.0], [0.0, 0.0]]) / divisor)
    result.sum().backward()
    assert layer.weight.grad is not None and not layer.weight.grad[0].any()
    with pytest.raises(ValueError, match="a combiner of sum, mean, sqrtn"):
        modules.SparseEmbedding(5, 2, combiner="max")


@pytest.mark.parametrize(
    ("transformation", "values", "complaint"),
    [
        (Hashing(3), torch.tensor([1.5]), "expected text or whole numbers. Received: torch.float32"),
        (Sequence(",", 2), torch.tensor([1]), "expected a column of text"),
        (ToSparse(), (torch.tensor([1]), torch.tensor([0, 1])), "expected a dense column"),
        (ConcatenateWithOffset(), [torch.tensor([1.5])], "expected whole numbers"),
        (ConcatenateWithOffset([1]), [torch.tensor([1])] * 2, "expected 1 columns, as many as offsets. Received: 2"),
        (Cross(3), [torch.tensor([1]), torch.tensor([1, 2])], "columns of the same shape"),
    ],
)
def test_columns_that_do_not_fit_are_refused(transformation: Transform, values: Any, complaint: str) -> None:
    with pytest.raises(DataError, match=complaint):
        transformation(values)


def test_modules_are_made_from_statistics_and_print_their_options() -> None:
    number = ColumnStatistics(kind=ColumnKind.NUMBER, missing=0, distinct=3, maximum=100)
    statistics = Statistics(source="made up", rows=3, columns={"I1": number})

    module = modules.LogRound.from_statistics("I1", base=10, statistics=statistics)

    assert module.definition == LogRound(3, base=10)
    assert repr(module) == "LogRound(num_bins=3, default_value=0, base=10)"
    assert not module.state_dict()
    assert repr(modules.SparseEmbedding(5, 2)) == "SparseEmbedding(5, 2, combiner='mean')"


def test_every_transformation_has_a_module() -> None:
    from elasticdl.features.transforms import ALL_TRANSFORMS

    assert set(modules.MODULES) == set(ALL_TRANSFORMS)
    assert all(getattr(modules, kind.__name__).definition_class is kind for kind in ALL_TRANSFORMS)
    assert isinstance(ToSparse()([[1]]), Sparse) and ToNumber(torch.float32, 0) == ToNumber("float32", 0)
    assert DateParts("day")(torch.tensor([0])).tolist() == [[1]]
