"""The state of the user's script: saved, restored, and stepped with its optimizer."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch
from torch import nn
from torch.optim import lr_scheduler
from torch.optim.swa_utils import AveragedModel

from elasticdl.errors import ElasticDLError, SpecError
from elasticdl.worker.training.user_state import UserState


def sgd() -> torch.optim.Optimizer:
    return torch.optim.SGD(nn.Linear(2, 1).parameters(), lr=0.1)


def stepped(optimizer: torch.optim.Optimizer) -> None:
    """As after an update, so that schedulers do not warn."""
    optimizer.step()


def test_state_comes_back_through_json() -> None:
    model = nn.Linear(2, 1)
    average, scaler = AveragedModel(model), torch.amp.GradScaler("cpu", init_scale=64.0)
    average.update_parameters(model)
    tensors: dict[str, torch.Tensor] = {}
    captured = json.loads(
        json.dumps(UserState(objects={"average": average, "scaler": scaler}).capture(tensors), sort_keys=False)
    )
    restored_average, restored_scaler = AveragedModel(nn.Linear(2, 1)), torch.amp.GradScaler("cpu")

    missing = UserState(objects={"average": restored_average, "scaler": restored_scaler}).restore(captured, tensors)

    assert missing == []
    assert (
        restored_average.module.state_dict()["weight"].equal(average.module.state_dict()["weight"])
        and int(restored_average.n_averaged) == 1
    )
    assert restored_scaler.get_scale() == 64.0


def test_objects_missing_from_the_state_are_named() -> None:
    state = UserState(objects={"average": nn.Linear(2, 1)})

    assert state.restore({}, {}) == ["average"]


def test_a_scheduler_is_stepped_only_with_its_own_optimizer() -> None:
    optimizers = [sgd(), sgd()]
    schedulers = [lr_scheduler.StepLR(optimizer, 1) for optimizer in optimizers]
    state = UserState(schedulers)
    for optimizer in optimizers:
        stepped(optimizer)

    state.after_optimizer_steps(optimizers[1:])

    assert [scheduler.last_epoch for scheduler in schedulers] == [0, 1]


def composed(kind: str, optimizer: torch.optim.Optimizer) -> Any:
    parts: list[Any] = [lr_scheduler.ConstantLR(optimizer, total_iters=2), lr_scheduler.ExponentialLR(optimizer, 0.9)]
    if kind == "chained":
        return lr_scheduler.ChainedScheduler(parts, optimizer)
    return lr_scheduler.SequentialLR(optimizer, parts, [2]) if kind == "sequential" else parts[1]


@pytest.mark.parametrize("kind", ["plain", "chained", "sequential"])
def test_a_scheduler_that_was_stepped_elsewhere_is_detected(kind: str) -> None:
    optimizer = sgd()
    scheduler = composed(kind, optimizer)
    state = UserState([scheduler])
    state.check_objects()
    stepped(optimizer)
    state.after_optimizer_steps([optimizer])
    state.check_schedulers(1)

    scheduler.step()

    with pytest.raises(ElasticDLError, match="step 1: schedulers"):
        state.check_schedulers(1)


def test_scalers_that_are_disabled_are_not_in_use() -> None:
    scaler, disabled = torch.amp.GradScaler("cpu"), torch.amp.GradScaler("cpu", enabled=False)

    assert UserState(objects={"one": scaler, "two": disabled}).scalers == [scaler]


def test_an_object_without_a_step_is_no_scheduler() -> None:
    with pytest.raises(SpecError, match=r"expected objects with step\(\)"):
        UserState([nn.Linear(1, 1)]).check_objects()


def test_a_worker_without_records_in_its_first_step_may_unscale() -> None:
    parameter = nn.Parameter(torch.ones(2))
    parameter.grad = torch.ones(2)
    optimizer = torch.optim.SGD([parameter], lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    with pytest.raises(AssertionError, match="_scale is None"):
        scaler.unscale_(optimizer)

    UserState(objects={"scaler": scaler}).start_scalers(torch.device("cpu"))

    scaler.unscale_(optimizer)
    assert parameter.grad.tolist() == [0.25, 0.25]
