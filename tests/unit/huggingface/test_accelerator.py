from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState, GradientState
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from elasticdl.errors import ElasticDLError, SpecError
from elasticdl.huggingface import ElasticAccelerator

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(autouse=True)
def fresh_state() -> Iterator[None]:
    yield
    AcceleratorState._reset_state(reset_partial_state=True)
    GradientState._reset_state()


def data(records: int = 24, batch_size: int = 6) -> DataLoader[Any]:
    torch.manual_seed(2)
    return DataLoader(TensorDataset(torch.randn(records, 3), torch.randn(records, 1)), batch_size=batch_size)


def train(accelerator: Accelerator, epochs: int = 2) -> tuple[nn.Module, int]:
    torch.manual_seed(1)
    model, optimizer, loader = _prepare(accelerator)
    updates = 0
    for _ in range(epochs):
        for features, labels in loader:
            with accelerator.accumulate(model):
                accelerator.backward(nn.functional.mse_loss(model(features), labels))
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), 0.1)
                    updates += 1
                optimizer.step()
                optimizer.zero_grad()
    return model, updates


def _prepare(accelerator: Accelerator) -> tuple[nn.Module, Any, Any]:
    model = nn.Linear(3, 1)
    prepared = accelerator.prepare(model, torch.optim.AdamW(model.parameters(), lr=0.1), data())
    return prepared[0], prepared[1], prepared[2]


def test_one_logical_rank_trains_the_same_bits_as_accelerate_alone() -> None:
    plain, expected = train(Accelerator(cpu=True))
    AcceleratorState._reset_state(reset_partial_state=True)
    GradientState._reset_state()

    model, updates = train(ElasticAccelerator(epochs=2, cpu=True))

    assert updates == expected == 8
    for name, value in plain.state_dict().items():
        assert torch.equal(value, model.state_dict()[name]), name


def test_accumulated_batches_are_one_update() -> None:
    accelerator = ElasticAccelerator(epochs=2, gradient_accumulation_steps=2, logical_ranks=2, cpu=True)

    _, updates = train(accelerator)

    assert updates == accelerator.job.step == 4


def test_a_batch_without_backward_is_an_error() -> None:
    accelerator = ElasticAccelerator(epochs=1, cpu=True)
    _, _, loader = _prepare(accelerator)

    with pytest.raises(ElasticDLError, match=r"accelerator\.backward"):
        for _ in loader:
            pass


def test_a_last_batch_that_could_leave_a_worker_without_records_is_refused() -> None:
    accelerator = ElasticAccelerator(epochs=1, global_batch_size=23, logical_ranks=4, cpu=True)
    _, _, loader = _prepare(accelerator)

    with pytest.raises(SpecError, match="drop_last=True"):
        iter(loader).__next__()
