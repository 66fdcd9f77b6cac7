"""LR schedulers with `join`: the same rates and bits as in a loop of plain PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch.optim import lr_scheduler

from tests.unit.torch.loops import STEPS, cross_entropy, is_same, join, plain_batches, rates, small_model

Make = Callable[[torch.optim.Optimizer], lr_scheduler.LRScheduler]


def sequential(optimizer: torch.optim.Optimizer) -> lr_scheduler.LRScheduler:
    warm_up = lr_scheduler.LinearLR(optimizer, 0.1, total_iters=4)
    return lr_scheduler.SequentialLR(optimizer, [warm_up, lr_scheduler.ExponentialLR(optimizer, 0.9)], milestones=[4])


def chained(optimizer: torch.optim.Optimizer) -> lr_scheduler.LRScheduler:
    parts = [lr_scheduler.ConstantLR(optimizer, 0.5, total_iters=3), lr_scheduler.ExponentialLR(optimizer, 0.9)]
    return lr_scheduler.ChainedScheduler(parts, optimizer)


SCHEDULERS: dict[str, Make] = {
    "step": lambda optimizer: lr_scheduler.StepLR(optimizer, 4, gamma=0.5),
    "multi-step": lambda optimizer: lr_scheduler.MultiStepLR(optimizer, [3, 6], gamma=0.5),
    "one-cycle": lambda optimizer: lr_scheduler.OneCycleLR(optimizer, 0.2, total_steps=STEPS + 1),
    "restarts": lambda optimizer: lr_scheduler.CosineAnnealingWarmRestarts(optimizer, 4, T_mult=2),
    "cosine": lambda optimizer: lr_scheduler.CosineAnnealingLR(optimizer, STEPS),
    "cyclic": lambda optimizer: lr_scheduler.CyclicLR(optimizer, 0.01, 0.1, step_size_up=3),
    "polynomial": lambda optimizer: lr_scheduler.PolynomialLR(optimizer, STEPS),
    "sequential": sequential,
    "chained": chained,
    "lambda": lambda optimizer: lr_scheduler.LambdaLR(optimizer, lambda step: 1 / (1 + step)),
    "numpy": lambda optimizer: lr_scheduler.LambdaLR(optimizer, lambda step: np.cos(step / 20)),
    "multiplicative": lambda optimizer: lr_scheduler.MultiplicativeLR(optimizer, lambda step: 0.9),
}


def momentum(model: torch.nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)


def train_plainly(make: Make) -> tuple[torch.nn.Module, torch.optim.Optimizer]:
    model = small_model()
    optimizer = momentum(model)
    scheduler = make(optimizer)
    for features, labels in plain_batches():
        optimizer.zero_grad()
        cross_entropy(model, features, labels).backward()
        optimizer.step()
        scheduler.step()
    return model, optimizer


@pytest.mark.parametrize("name", SCHEDULERS)
def test_a_scheduler_stepped_by_the_job_gives_the_rates_of_a_plain_loop(name: str) -> None:
    expected, reference = train_plainly(SCHEDULERS[name])
    model = small_model()
    optimizer = momentum(model)

    for step in join(model, optimizer, schedulers=SCHEDULERS[name](optimizer)):
        for features, labels in step:
            step.backward(cross_entropy(model, features, labels))

    assert rates(optimizer) == rates(reference)
    assert is_same(model, expected)


@pytest.mark.parametrize("name", SCHEDULERS)
def test_a_scheduler_in_state_is_stepped_by_the_script(name: str) -> None:
    expected, reference = train_plainly(SCHEDULERS[name])
    model = small_model()
    optimizer = momentum(model)
    scheduler = SCHEDULERS[name](optimizer)

    for step in join(model, optimizer, state={"scheduler": scheduler}):
        for features, labels in step:
            step.backward(cross_entropy(model, features, labels))
        optimizer.step()
        scheduler.step()

    assert rates(optimizer) == rates(reference)
    assert is_same(model, expected)


def test_reduce_on_plateau_follows_the_loss_of_the_step() -> None:
    expected = small_model()
    reference = momentum(expected)
    plateau = lr_scheduler.ReduceLROnPlateau(reference, patience=0)
    for features, labels in plain_batches():
        reference.zero_grad()
        loss = cross_entropy(expected, features, labels)
        loss.backward()
        reference.step()
        plateau.step(loss.item())
    model = small_model()
    optimizer = momentum(model)
    scheduler = lr_scheduler.ReduceLROnPlateau(optimizer, patience=0)

    for step in join(model, optimizer, state={"plateau": scheduler}):
        for features, labels in step:
            step.backward(cross_entropy(model, features, labels))
        optimizer.step()
        scheduler.step(step.loss)

    assert rates(optimizer) == rates(reference) != [0.1]
    assert is_same(model, expected)


def test_groups_keep_their_ratio_under_learning_rate() -> None:
    model = small_model()
    groups: list[dict[str, Any]] = [{"params": model[0].parameters()}, {"params": model[2].parameters(), "lr": 0.01}]
    optimizer = torch.optim.SGD(groups, lr=0.1)

    for step in join(model, optimizer, learning_rate=lambda step: 0.1 / (1 + step)):
        for features, labels in step:
            step.backward(cross_entropy(model, features, labels))

    assert rates(optimizer) == pytest.approx([0.1 / STEPS, 0.01 / STEPS])


def test_each_scheduler_is_stepped_with_its_own_optimizer() -> None:
    first, second = small_model(1), small_model(2)
    optimizers = [torch.optim.SGD(first.parameters(), lr=0.1), torch.optim.SGD(second.parameters(), lr=0.1)]
    schedulers = [lr_scheduler.StepLR(optimizer, 1, gamma=0.9) for optimizer in optimizers]

    for step in join([first, second], optimizers, schedulers=schedulers):
        for features, labels in step:
            step.backward(cross_entropy(first, features, labels))
        optimizers[0].step()
        if step.number % 3 == 0:
            for features, labels in step:
                step.backward(cross_entropy(second, features, labels))
            optimizers[1].step()

    assert [scheduler.last_epoch for scheduler in schedulers] == [STEPS, STEPS // 3]
    assert rates(optimizers[0]) == pytest.approx([0.1 * 0.9**STEPS])
