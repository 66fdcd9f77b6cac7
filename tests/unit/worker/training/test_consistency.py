"""Digests of the training state: every difference is detected, and nothing else."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from elasticdl.worker.training.consistency import (
    ConsistencyGuard,
    checksum,
    get_hyperparameters,
    hyperparameter_entries,
    mode_entries,
    set_hyperparameters,
    state_entries,
)
from tests.properties import examples
from tests.unit.worker.trainings import new_training, train_steps

DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.int64, torch.uint8, torch.complex64]


def bits(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.reshape(-1).view(torch.uint8)


@given(st.sampled_from(DTYPES), st.integers(1, 5000), st.data())
@settings(max_examples=examples(60))
def test_any_single_changed_bit_changes_the_checksum(dtype: torch.dtype, size: int, data: st.DataObject) -> None:
    tensor = torch.randint(0, 100, (size,), generator=torch.Generator().manual_seed(size)).to(dtype)
    changed = tensor.clone()
    index = data.draw(st.integers(0, bits(tensor).numel() - 1))
    bits(changed)[index] ^= 1 << data.draw(st.integers(0, 7))

    assert int(checksum(changed)) != int(checksum(tensor))


@given(st.integers(0, 3), st.integers(4, 9), st.sampled_from([(0.0, 1e-30), (3.0, 4.0), (1.0, 2.0)]))
@settings(max_examples=examples(60))
def test_swapped_rows_change_the_checksum(one: int, two: int, numbers: tuple[float, float]) -> None:
    rows = torch.zeros(10, 128)
    rows[one], rows[two] = numbers
    swapped = rows.clone()
    swapped[[one, two]] = rows[[two, one]]

    assert int(checksum(swapped)) != int(checksum(rows))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.uint8])
def test_a_view_that_begins_anywhere_has_the_checksum_of_its_copy(dtype: torch.dtype) -> None:
    """As the weights of an LSTM on a GPU, which are parts of one buffer."""
    view = torch.arange(13).to(dtype)[1:]

    assert int(checksum(view)) == int(checksum(view.clone()))


def test_a_conjugated_view_has_the_checksum_of_its_values() -> None:
    tensor = torch.randn(5, dtype=torch.complex64)

    assert int(checksum(tensor.conj())) == int(checksum(tensor.conj().resolve_conj()))


def test_a_tensor_without_elements_has_a_checksum() -> None:
    assert int(checksum(torch.empty(0))) == 0


def test_the_order_of_first_gradients_does_not_matter() -> None:
    """It is that of the optimizer's state, and another one after a restore."""
    live = new_training()
    model = live.model
    assert isinstance(model, nn.Sequential)
    last, first = list(model[2].parameters()), list(model[0].parameters())
    for parameters in (last, first):
        for parameter in model.parameters():
            parameter.grad = torch.ones_like(parameter) if any(parameter is p for p in parameters) else None
        live.optimizer.step()  # before the training holds a state, so it is allowed
    live.begin()
    image = live.capture()
    restored = new_training()
    restored.load(replace(image, tensors=dict(sorted(image.tensors.items()))))  # as a file gives them back

    assert state_entries(restored) == state_entries(live)


def test_numbers_of_numpy_are_numbers() -> None:
    """A scheduler with NumPy's functions leaves them in the groups; a newcomer receives plain ones."""
    training, newcomer = new_training(), new_training()
    training.optimizer.param_groups[0]["lr"] = np.float64(0.3)
    training.optimizer.param_groups[0]["momentum"] = np.float32(0.5)

    set_hyperparameters(newcomer.optimizer, json.loads(json.dumps(get_hyperparameters(training.optimizer))))

    assert get_hyperparameters(newcomer.optimizer)[0]["lr"] == 0.3
    assert hyperparameter_entries(newcomer) == hyperparameter_entries(training)


def test_a_worker_left_in_eval_mode_is_named_if_the_mode_matters() -> None:
    """Linear layers compute the same in both modes, so forgetting model.train() is harmless there."""
    plain, dropping = new_training(), new_training()
    assert isinstance(dropping.model, nn.Sequential)
    dropping.model.append(nn.Dropout())
    digests = [ConsistencyGuard(1).digest(training, is_whole=True) for training in (plain, dropping)]
    for training in (plain, dropping):
        training.model.eval()

    assert ConsistencyGuard(1).digest(plain, is_whole=True) == digests[0]
    assert ConsistencyGuard(1).digest(dropping, is_whole=True) != digests[1]
    assert [name for name, is_training in mode_entries(dropping) if not is_training] == ["train() or eval() of 3"]


def test_workers_in_different_updates_have_different_digests() -> None:
    first, second = new_training(), new_training()
    for training in (first, second):
        training.begin()
    second.step = 1

    assert ConsistencyGuard(0).digest(first, is_whole=False) != ConsistencyGuard(0).digest(second, is_whole=False)


@pytest.mark.parametrize("is_whole", [True, False])
def test_replicas_with_the_same_history_have_the_same_digest(is_whole: bool) -> None:
    digests = []
    for _ in range(2):
        training = new_training()
        train_steps(training, 3)
        digests.append(ConsistencyGuard(1).digest(training, is_whole=is_whole))

    assert digests[0] == digests[1]


@pytest.mark.parametrize(
    ("every", "step", "is_saved", "expected"),
    [(4, 8, False, True), (4, 9, False, False), (4, 9, True, True), (4, 0, True, False), (0, 8, True, False)],
)
def test_the_whole_state_is_compared_at_intervals_and_before_a_checkpoint(
    every: int, step: int, is_saved: bool, expected: bool
) -> None:
    assert ConsistencyGuard(every).is_due(step, is_saved=is_saved) is expected
