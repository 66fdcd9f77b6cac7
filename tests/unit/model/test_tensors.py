"""Batches become tensors without losing their structure, their dtype or their text."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest
import torch

from elasticdl.data.dataset import Batch
from elasticdl.errors import DataError
from elasticdl.model import tensors

CPU = torch.device("cpu")


class Pair(NamedTuple):
    left: object
    right: object


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([1, 2], torch.tensor([1, 2])),
        ([0.5, 1.5], torch.tensor([0.5, 1.5])),
        ([True, False], torch.tensor([True, False])),
        ([[1.0, 2.0], [3.0, 4.0]], torch.tensor([[1.0, 2.0], [3.0, 4.0]])),
        ([np.float64(1), np.float64(2)], torch.tensor([1.0, 2.0], dtype=torch.float64)),
        ([np.zeros(2, np.uint8), np.ones(2, np.uint8)], torch.tensor([[0, 0], [1, 1]], dtype=torch.uint8)),
        ([torch.tensor(1.0, dtype=torch.bfloat16)], torch.tensor([1.0], dtype=torch.bfloat16)),
    ],
)
def test_values_are_stacked_with_their_dtype(values: list[object], expected: torch.Tensor) -> None:
    stacked = tensors.stack_values(values)

    assert stacked.dtype == expected.dtype and stacked.equal(expected)


def test_text_stays_a_list() -> None:
    assert tensors.stack_values(["a", "b"]) == ["a", "b"]
    assert tensors.to_tensors(np.array(["a", "b"])) == ["a", "b"]


def test_structures_are_kept() -> None:
    batch = Batch({"x": np.zeros((2, 3)), "t": ["a", "b"]}, Pair(np.ones(2), (np.zeros(2),)), 2)

    moved = tensors.move_batch(batch, CPU)

    assert tensors.describe_structure(moved.features) == "{x: float64[2, 3], t: list[2]}"
    assert isinstance(moved.labels, Pair) and tensors.describe_structure(moved.labels) == "(float64[2], (float64[2]))"
    assert moved.size == tensors.batch_size(moved.features) == 2


def test_a_read_only_or_foreign_array_is_copied() -> None:
    array = np.arange(3, dtype=">i4")
    array.flags.writeable = False

    assert tensors.to_tensors(array).tolist() == [0, 1, 2]


def test_no_labels_stay_none() -> None:
    assert tensors.move_batch(Batch(np.zeros(2), None, 2), CPU).labels is None


def test_parts_that_disagree_are_refused() -> None:
    with pytest.raises(DataError, match="different numbers"):
        tensors.batch_size({"a": torch.zeros(2), "b": torch.zeros(3)})


def test_slicing_rows_of_a_batch_keeps_its_structure() -> None:
    batch = {"pair": Pair(torch.arange(5), ["a", "b", "c", "d", "e"]), "flat": (torch.ones(5, 2),)}

    sliced = tensors.slice_rows(batch, 3, 5)

    assert isinstance(sliced["pair"], Pair) and sliced["pair"].right == ["d", "e"]
    assert torch.equal(sliced["pair"].left, torch.tensor([3, 4]))  # type: ignore[arg-type]
    assert sliced["flat"][0].shape == (2, 2)


def test_slicing_keeps_the_rows_of_jagged_and_sparse_tensors() -> None:
    parts = [torch.tensor([1.0, 2.0]), torch.tensor([]), torch.tensor([3.0]), torch.tensor([4.0, 5.0, 6.0])]
    jagged = torch.nested.nested_tensor(parts, layout=torch.jagged)
    dense = torch.eye(4)[[2, 0, 3, 1]]

    rows = tensors.slice_rows((jagged, dense.to_sparse()), 1, 4)

    assert [part.tolist() for part in rows[0].unbind()] == [[], [3.0], [4.0, 5.0, 6.0]]
    assert torch.equal(rows[1].to_dense(), dense[1:4])
