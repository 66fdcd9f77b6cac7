from __future__ import annotations

import torch
from torch import nn
from torch.utils.data import TensorDataset

from elasticdl.torch.epochs import EpochLoader, LoopState
from elasticdl.torch.join import join
from elasticdl.worker.training.step import Step


def open_loader(state: LoopState, place: list[int], epochs: int = 2) -> tuple[EpochLoader, nn.Module]:
    model = nn.Linear(2, 1)
    data = TensorDataset(torch.ones(10, 2), torch.zeros(10, 1))
    job = join(
        model, torch.optim.SGD(model.parameters(), lr=0.1), data, global_batch_size=4, epochs=epochs, logical_ranks=2,
        state={"loop": state},
    )  # fmt: skip
    return EpochLoader(job, state, lambda step: place.append(step.number)), model


def compute(step: Step, model: nn.Module) -> None:
    for features, labels in step:
        step.measure("mean", features.mean())
        step.backward(nn.functional.mse_loss(model(features), labels))


def test_each_iteration_gives_the_steps_of_one_epoch() -> None:
    places: list[int] = []
    loader, model = open_loader(LoopState(dict, lambda state: None), places)
    numbers = []
    for _ in range(2):
        for step in loader:
            compute(step, model)
            assert step.averages == {"mean": 1.0}
            numbers.append((step.epoch, step.number))
    loader.finish()

    assert len(loader) == 3
    assert numbers == [(0, 0), (0, 1), (0, 2), (1, 3), (1, 4), (1, 5)]
    assert places == list(range(6)) and loader.job.step == 6


def test_leaving_the_loop_ends_the_training_with_its_latest_step() -> None:
    loader, model = open_loader(LoopState(dict, lambda state: None), [])
    for step in loader:
        compute(step, model)
        break
    loader.finish()

    assert loader.job.step == 1


def test_the_state_in_a_loop_is_that_between_two_steps() -> None:
    counter = {"batches": 0}
    state = LoopState(lambda: counter, lambda kept: counter.update(kept))
    loader, model = open_loader(state, [])
    for step in loader:
        assert state.state_dict().get("batches", 0) == step.number
        counter["batches"] += 1
        assert state.state_dict().get("batches", 0) == step.number
        compute(step, model)
    state.load_state_dict({"batches": 7})

    assert counter == {"batches": 7}
