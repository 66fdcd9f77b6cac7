"""Data loaders with processes."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import (
    DataLoader,
    TensorDataset,
)

import elasticdl.torch as elastic


class SlowTensors(TensorDataset):
    """Not a TensorDataset itself, so its items are read one by one."""


@pytest.mark.parametrize("num_workers", [0, 1])
def test_rows_of_a_tensor_dataset_are_read_at_once_and_equal_its_items(num_workers: int) -> None:
    tensors = torch.randn(20, 3, 4), torch.arange(20), torch.arange(40.0).view(20, 2).to(torch.bfloat16)

    def batches(dataset: TensorDataset, **how: Any) -> list[Any]:
        model = nn.Linear(1, 1)
        data = DataLoader(dataset, batch_size=8, num_workers=num_workers, **how) if how else dataset
        size = None if how else 8
        options: dict[str, Any] = {} if how else {"num_workers": num_workers}
        job = elastic.join(
            model, torch.optim.SGD(model.parameters(), lr=0.1), data, global_batch_size=size, logical_ranks=3, **options
        )
        seen = []
        for step in job:
            for batch in step:
                seen.append((batch, torch.rand(1)))
                step.backward(model(torch.ones(1)).sum())
        return seen

    for how in ({}, {"shuffle": True}):
        at_once, one_by_one = batches(TensorDataset(*tensors), **how), batches(SlowTensors(*tensors), **how)
        assert len(at_once) == 9
        for (batch, drawn), (expected, expected_drawn) in zip(at_once, one_by_one, strict=True):
            assert type(batch) is type(expected)
            assert all(torch.equal(a, b) and a.stride() == b.stride() for a, b in zip(batch, expected, strict=True))
            assert torch.equal(drawn, expected_drawn)
