"""What `join` and its steps refuse, and the fix they name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.optim import lr_scheduler

from elasticdl.errors import ElasticDLError, SpecError
from elasticdl.torch.join import JoinedJob
from tests.unit.torch.loops import cross_entropy, join, small_model


def sgd(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.1)


def train(job: JoinedJob, model: nn.Module, after: Callable[[], Any] = lambda: None) -> None:
    for step in job:
        for features, labels in step:
            step.backward(cross_entropy(model, features, labels))
        after()


class DistributedDataParallel(nn.Module):
    """Replaces torch's class, which needs a process group."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module


def with_buffer(buffer: torch.Tensor) -> nn.Module:
    model = nn.Linear(6, 2)
    model.register_buffer("scale", buffer)
    return model


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        (lambda: nn.Sequential(nn.Linear(6, 2), nn.SyncBatchNorm(2)), "use BatchNorm"),
        (lambda: DistributedDataParallel(small_model()), "without DDP"),
        (lambda: nn.DataParallel(small_model()), "without DataParallel"),
        (lambda: nn.Linear(6, 2).requires_grad_(False), "nothing to train"),
        (lambda: with_buffer(torch.zeros(2, dtype=torch.float8_e4m3fnuz)), "scale is of torch.float8_e4m3fnuz"),
    ],
)
def test_models_that_cannot_be_replicated_are_refused(model: Callable[[], nn.Module], expected: str) -> None:
    refused = model()

    with pytest.raises(SpecError, match=expected):
        join(refused, sgd(refused))


@pytest.mark.filterwarnings("ignore:Lazy modules")
def test_lazy_modules_are_refused() -> None:
    model = nn.Sequential(nn.LazyLinear(8), nn.Linear(8, 2))
    optimizer = torch.optim.SGD(model[1].parameters(), lr=0.1)

    with pytest.raises(SpecError, match="run one batch through the model"):
        join(model, optimizer)


@pytest.mark.parametrize(
    ("optimizer", "expected"),
    [
        (lambda model: torch.optim.LBFGS(model.parameters()), "LBFGS evaluates its closure several times"),
        (lambda model: torch.optim.SparseAdam(list(model.parameters())), "elasticdl.torch.Embedding"),
        (lambda model: sgd(small_model()), "parameters that are not in the model"),
        (lambda model: "sgd", "expected an optimizer of torch"),
    ],
)
def test_optimizers_that_would_make_workers_diverge_are_refused(
    optimizer: Callable[[nn.Module], Any], expected: str
) -> None:
    model = small_model()

    with pytest.raises(SpecError, match=expected):
        join(model, [optimizer(model)])


def test_a_fused_optimizer_with_a_grad_scaler_is_refused() -> None:
    """It unscales inside of its step, where a new worker that repeats the step has no scaler."""
    model = small_model()
    optimizer = torch.optim.Adam(model.parameters(), fused=True)

    with pytest.raises(SpecError, match="fused=False"):
        join(model, optimizer, state={"scaler": torch.amp.GradScaler("cpu")})


def test_a_scheduler_that_join_does_not_know_is_refused() -> None:
    model = small_model()
    optimizer = sgd(model)
    scheduler = lr_scheduler.StepLR(optimizer, 3)

    with pytest.raises(SpecError, match="schedulers=scheduler"):
        train(join(model, optimizer), model, scheduler.step)


def test_a_grad_scaler_that_join_does_not_know_is_refused() -> None:
    model = small_model()
    scaler = torch.amp.GradScaler("cpu")

    with pytest.raises(SpecError, match=r"state={'scaler': scaler}"):
        train(join(model, sgd(model)), model, scaler.update)


def test_learning_rate_and_a_scheduler_together_are_refused() -> None:
    model = small_model()
    optimizer = sgd(model)

    with pytest.raises(SpecError, match="learning_rate= and schedulers="):
        join(model, optimizer, schedulers=lr_scheduler.StepLR(optimizer, 3), learning_rate=lambda step: 0.1)


class Unpackable:
    def state_dict(self) -> dict[str, Any]:
        return {"socket": object()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        pass


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        ({"count": 3}, "expected an object with state_dict"),
        ({"thing": Unpackable()}, "cannot be saved"),
    ],
)
def test_state_that_cannot_be_saved_is_refused(state: dict[str, Any], expected: str) -> None:
    model = small_model()

    with pytest.raises(SpecError, match=expected):
        join(model, sgd(model), state=state)


def test_a_plateau_scheduler_is_no_scheduler_that_the_job_can_step() -> None:
    model = small_model()
    optimizer = sgd(model)

    with pytest.raises(SpecError, match=r"state={'plateau': scheduler}"):
        join(model, optimizer, schedulers=lr_scheduler.ReduceLROnPlateau(optimizer))


def test_a_scheduler_stepped_by_job_and_script_is_refused() -> None:
    model = small_model()
    optimizer = sgd(model)
    scheduler = lr_scheduler.StepLR(optimizer, 3)

    with pytest.raises(ElasticDLError, match="was stepped by the script"):
        train(join(model, optimizer, schedulers=scheduler), model, lambda: (optimizer.step(), scheduler.step()))


def test_a_group_that_is_added_after_join_is_refused() -> None:
    model = small_model()
    optimizer = torch.optim.SGD(model[0].parameters(), lr=0.1)

    with pytest.raises(ElasticDLError, match="step 1: parameters or groups"):
        train(join(model, optimizer), model, lambda: optimizer.add_param_group({"params": model[2].parameters()}))


@pytest.mark.parametrize("is_frozen_first", [True, False])
def test_requires_grad_that_changes_after_join_is_refused(is_frozen_first: bool) -> None:
    model = small_model()
    model[0].requires_grad_(not is_frozen_first)
    job = join(model, sgd(model))

    with pytest.raises(ElasticDLError, match="step 1: parameters or groups"):
        train(job, model, lambda: model[0].requires_grad_(is_frozen_first))


def test_an_update_inside_the_loop_over_batches_is_refused() -> None:
    model = small_model()
    optimizer = sgd(model)
    steps = iter(join(model, optimizer))
    step = next(steps)

    for features, labels in step:
        step.backward(cross_entropy(model, features, labels))
        with pytest.raises(ElasticDLError, match="gradients are not whole"):
            optimizer.step()


def test_two_updates_of_the_same_gradients_are_refused() -> None:
    model = small_model()
    optimizer = sgd(model)

    with pytest.raises(ElasticDLError, match="twice for the same gradients"):
        train(join(model, optimizer), model, lambda: (optimizer.step(), optimizer.step()))


def test_a_closure_is_refused() -> None:
    model = small_model()
    optimizer = sgd(model)

    with pytest.raises(ElasticDLError, match="without a closure"):
        train(join(model, optimizer), model, lambda: optimizer.step(lambda: 0.0))


def test_going_through_the_batches_twice_without_an_update_is_refused() -> None:
    model = small_model()

    steps = iter(join(model, sgd(model)))
    step = next(steps)
    for features, labels in step:
        step.backward(cross_entropy(model, features, labels))

    with pytest.raises(ElasticDLError, match=r"call optimizer.step\(\) after the first"):
        next(iter(step))


def test_a_batch_without_backward_is_refused() -> None:
    model = small_model()

    steps = iter(join(model, sgd(model)))

    with pytest.raises(ElasticDLError, match="8 of its 8 records have no loss yet"):
        list(next(steps))


def test_a_backward_pass_of_torch_instead_of_the_steps_is_refused() -> None:
    model = small_model()

    steps = iter(join(model, sgd(model)))

    for features, labels in next(steps):
        loss = cross_entropy(model, features, labels)
        with pytest.raises(ElasticDLError, match=r"step.backward\(loss\)"):
            loss.backward()
        break


def test_a_step_without_its_batches_is_refused() -> None:
    model = small_model()

    with pytest.raises(ElasticDLError, match="iterate over all its batches"):
        list(join(model, sgd(model)))


def test_gradients_cleared_before_the_update_are_refused() -> None:
    model = small_model()
    optimizer = sgd(model)

    with pytest.raises(ElasticDLError, match="cleared before the update"):
        train(join(model, optimizer), model, optimizer.zero_grad)


def test_several_optimizers_are_called_by_the_script() -> None:
    first, second = small_model(1), small_model(2)

    with pytest.raises(ElasticDLError, match="the script says which of them to apply"):
        train(join([first, second], [sgd(first), sgd(second)]), first)


def test_an_explicit_update_after_automatic_ones_is_refused() -> None:
    """It would be unclear which of the steps without a call should be skipped and which applied."""
    model = small_model()
    optimizer = sgd(model)
    job = join(model, optimizer)

    with pytest.raises(ElasticDLError, match="in every step"):
        train(job, model, lambda: optimizer.step() if job.step == 3 else None)


def test_a_second_loop_over_the_job_is_refused() -> None:
    model = small_model()
    job = join(model, sgd(model))
    train(job, model)

    with pytest.raises(ElasticDLError, match="a second time"):
        train(job, model)


def test_a_scaler_that_is_not_used_in_backward_is_refused() -> None:
    model = small_model()
    scaler = torch.amp.GradScaler("cpu")

    with pytest.raises(ElasticDLError, match="scaler=scaler"):
        train(join(model, sgd(model), state={"scaler": scaler}), model)


def test_names_of_state_and_schedulers_must_not_clash() -> None:
    model = small_model()
    optimizer = sgd(model)
    scheduler = lr_scheduler.StepLR(optimizer, 3)

    with pytest.raises(SpecError, match="scheduler-0"):
        join(model, optimizer, schedulers=scheduler, state={"scheduler-0": small_model()})
