"""Habits of PyTorch scripts with `join`, against the same loop in plain PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from tests.unit.torch.loops import (
    BATCH,
    STEPS,
    cross_entropy,
    digits,
    is_same,
    join,
    plain_batches,
    rates,
    small_model,
)

Prepare = Callable[[nn.Module], None]


def sgd(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)


def train_plainly(model: nn.Module, optimizer: torch.optim.Optimizer, prepare: Prepare, **data: Any) -> None:
    for features, labels in plain_batches(**data):
        optimizer.zero_grad()
        cross_entropy(model, features, labels).backward()
        prepare(model)
        optimizer.step()


def leave_alone(model: nn.Module) -> None:
    pass


def clip_norm(model: nn.Module) -> None:
    nn.utils.clip_grad_norm_(model.parameters(), 0.1)


def clip_value(model: nn.Module) -> None:
    nn.utils.clip_grad_value_(model.parameters(), 0.01)


def decay_weights(model: nn.Module) -> None:
    sum(0.01 * parameter.square().sum() for parameter in model.parameters()).backward()  # type: ignore[union-attr]


@pytest.mark.parametrize("prepare", [leave_alone, clip_norm, clip_value, decay_weights])
@pytest.mark.parametrize("is_explicit", [False, True])
def test_gradients_after_the_batches_equal_those_of_a_plain_loop(prepare: Prepare, is_explicit: bool) -> None:
    expected, model = small_model(), small_model()
    train_plainly(expected, sgd(expected), prepare)
    optimizer = sgd(model)

    for step in join(model, optimizer):
        for features, labels in step:
            step.backward(cross_entropy(model, features, labels))
        prepare(model)
        if is_explicit:
            optimizer.step()
            optimizer.zero_grad()

    assert is_same(model, expected)


@pytest.mark.parametrize("logical_ranks", [2, 3, 4])
@pytest.mark.parametrize("prepare", [leave_alone, clip_norm])
def test_logical_ranks_only_change_how_sums_are_rounded(prepare: Prepare, logical_ranks: int) -> None:
    expected, model = small_model(), small_model()
    train_plainly(expected, sgd(expected), prepare)

    for step in join(model, sgd(model), logical_ranks=logical_ranks):
        for features, labels in step:
            step.backward(cross_entropy(model, features, labels))
        prepare(model)

    for parameter, expected_parameter in zip(model.parameters(), expected.parameters(), strict=True):
        torch.testing.assert_close(parameter, expected_parameter, rtol=1e-4, atol=1e-6)


def test_micro_batches_equal_a_plain_loop_that_accumulates_gradients() -> None:
    expected, model = small_model(), small_model()
    reference = sgd(expected)
    for features, labels in plain_batches():
        reference.zero_grad()
        for part, part_labels in zip(features.split(3), labels.split(3), strict=True):
            (cross_entropy(expected, part, part_labels) * (len(part) / BATCH)).backward()
        reference.step()

    for step in join(model, sgd(model)):
        for features, labels in step:
            for part, part_labels in zip(features.split(3), labels.split(3), strict=True):
                step.backward(cross_entropy(model, part, part_labels), records=len(part))

    assert is_same(model, expected)


class Unused(nn.Module):
    """Two heads, of which batches use one."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(2)
        self.body, self.used, self.unused = nn.Linear(6, 8), nn.Linear(8, 2), nn.Linear(8, 2)

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.used(torch.tanh(self.body(features)))
        return result


def test_parameters_without_a_gradient_are_not_decayed() -> None:
    expected, model = Unused(), Unused()
    train_plainly(expected, torch.optim.AdamW(expected.parameters(), weight_decay=0.5), leave_alone)

    for step in join(model, torch.optim.AdamW(model.parameters(), weight_decay=0.5)):
        for features, labels in step:
            step.backward(cross_entropy(model, features, labels))

    assert is_same(model, expected)
    assert torch.equal(model.unused.weight, Unused().unused.weight)


def test_frozen_parameters_are_unchanged() -> None:
    expected, model = small_model(), small_model()
    for module in (expected, model):
        module[0].requires_grad_(False)
    train_plainly(expected, sgd(expected), leave_alone)

    for step in join(model, sgd(model)):
        for features, labels in step:
            step.backward(cross_entropy(model, features, labels))

    assert is_same(model, expected)


def scale_plainly(model: nn.Module, scaler: torch.amp.GradScaler) -> None:
    optimizer = sgd(model)
    for features, labels in plain_batches():
        optimizer.zero_grad()
        scaler.scale(cross_entropy(model, features, labels) * 100).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()


@pytest.mark.parametrize("is_enabled", [True, False])
def test_a_grad_scaler_skips_its_first_updates_as_in_a_plain_loop(is_enabled: bool) -> None:
    expected, model = small_model(), small_model()
    scalers = [torch.amp.GradScaler("cpu", init_scale=2.0**127, enabled=is_enabled) for _ in range(2)]
    scale_plainly(expected, scalers[0])
    optimizer, scaler = sgd(model), scalers[1]

    for step in join(model, optimizer, state={"scaler": scaler, "reference": scalers[0]}):
        for features, labels in step:
            step.backward(cross_entropy(model, features, labels) * 100, scaler=scaler)
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()

    assert is_same(model, expected)
    assert scaler.get_scale() == scalers[0].get_scale() < 2.0**127


def test_bf16_autocast_gives_the_bits_of_a_plain_loop() -> None:
    expected, model = small_model(), small_model()
    reference = sgd(expected)
    for features, labels in plain_batches():
        reference.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = cross_entropy(expected, features, labels)
        loss.backward()
        reference.step()

    for step in join(model, sgd(model)):
        for features, labels in step:
            with torch.autocast("cpu", dtype=torch.bfloat16):
                loss = cross_entropy(model, features, labels)
            step.backward(loss)

    assert is_same(model, expected)


@pytest.mark.parametrize("is_callback", [False, True])
def test_an_average_of_the_weights_is_that_of_a_plain_loop(is_callback: bool) -> None:
    expected, model = small_model(), small_model()
    averages = [AveragedModel(module, multi_avg_fn=get_ema_multi_avg_fn(0.9)) for module in (expected, model)]
    reference, optimizer = sgd(expected), sgd(model)
    for features, labels in plain_batches():
        reference.zero_grad()
        cross_entropy(expected, features, labels).backward()
        reference.step()
        averages[0].update_parameters(expected)
    after_update = (lambda: averages[1].update_parameters(model)) if is_callback else None

    for step in join(model, optimizer, state={"average": averages[1]}, after_update=after_update):
        for features, labels in step:
            step.backward(cross_entropy(model, features, labels))
        if not is_callback:
            optimizer.step()
            averages[1].update_parameters(model)

    assert is_same(averages[1], averages[0])


class ComplexModel(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(2)
        self.weight = nn.Parameter(torch.randn(6, 2, dtype=torch.complex64))

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        return (features.to(torch.complex64) @ self.weight.conj()).abs()


class TiedModel(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(2)
        self.body = nn.Linear(6, 6)
        self.again = nn.Linear(6, 6)
        self.again.weight = self.body.weight
        self.head = nn.Linear(6, 2)

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.head(self.again(torch.tanh(self.body(features))))
        return result


class MixedModel(nn.Module):
    def __init__(self, *dtypes: torch.dtype) -> None:
        super().__init__()
        torch.manual_seed(2)
        self.layers = nn.ModuleList(nn.Linear(6, 6).to(dtype) for dtype in dtypes)
        self.head = nn.Linear(6, 2)

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            weight = layer.weight
            assert isinstance(weight, torch.Tensor)
            features = torch.tanh(layer(features.to(weight.dtype)))
        result: torch.Tensor = self.head(features.float())
        return result


ODD_MODELS: dict[str, Callable[[], nn.Module]] = {
    "complex": ComplexModel,
    "tied": TiedModel,
    "fp64": lambda: MixedModel(torch.float32, torch.float64),
    "bf16": lambda: MixedModel(torch.bfloat16, torch.float32),
    "bf16 and fp64": lambda: MixedModel(torch.bfloat16, torch.float64),
}


@pytest.mark.parametrize("name", ODD_MODELS)
def test_odd_models_train_as_in_a_plain_loop(name: str) -> None:
    expected, model = ODD_MODELS[name](), ODD_MODELS[name]()
    train_plainly(expected, sgd(expected), leave_alone)

    for step in join(model, sgd(model)):
        for features, labels in step:
            step.backward(cross_entropy(model, features, labels))

    assert is_same(model, expected)


class SparseModel(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(2)
        self.rows = nn.Embedding(7, 2, sparse=True)

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.rows((features[:, 0] * 2).round().abs().clamp(max=6).long())
        return result


def test_sparse_gradients_are_summed_densely() -> None:
    expected, model = SparseModel(), SparseModel()
    train_plainly(expected, torch.optim.SGD(expected.parameters(), lr=0.1), leave_alone)

    for step in join(model, torch.optim.SGD(model.parameters(), lr=0.1)):
        for features, labels in step:
            step.backward(cross_entropy(model, features, labels))

    torch.testing.assert_close(model.rows.weight, expected.rows.weight)


def test_two_models_take_turns_within_a_step() -> None:
    pairs = [(small_model(1), small_model(2)) for _ in range(2)]
    for features, labels in plain_batches():
        for model in pairs[0]:
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            cross_entropy(model, features, labels).backward()
            optimizer.step()
            optimizer.zero_grad()
    first, second = pairs[1]
    optimizers = [torch.optim.SGD(model.parameters(), lr=0.1) for model in (first, second)]

    for step in join({"first": first, "second": second}, optimizers):
        for model, optimizer in zip((first, second), optimizers, strict=True):
            for features, labels in step:
                step.backward(cross_entropy(model, features, labels))
            optimizer.step()

    assert is_same(first, pairs[0][0]) and is_same(second, pairs[0][1])


def test_a_critic_may_be_trained_more_often_than_the_generator() -> None:
    critic, generator = small_model(1), small_model(2)
    optimizers = [torch.optim.SGD(model.parameters(), lr=0.1) for model in (critic, generator)]
    calls = [0, 0]
    for number, optimizer in enumerate(optimizers):
        optimizer.register_step_post_hook(lambda *_, number=number: calls.__setitem__(number, calls[number] + 1))

    job = join([critic, generator], optimizers)
    for step in job:
        for _ in range(3):
            for features, labels in step:
                step.backward(cross_entropy(critic, features, labels))
            optimizers[0].step()
        if step.number % 2:
            for features, labels in step:
                step.backward(cross_entropy(generator, features, labels))
            optimizers[1].step()

    assert calls == [3 * STEPS, STEPS // 2]
    assert job.step == STEPS


def test_a_model_may_be_frozen_in_some_updates_of_a_step() -> None:
    """The usual way to keep gradients out of the discriminator while the generator is trained."""
    critic, generator = small_model(1), nn.Linear(6, 6)
    optimizers = [torch.optim.SGD(model.parameters(), lr=0.1) for model in (critic, generator)]

    for step in join([critic, generator], optimizers):
        critic.requires_grad_(True)
        for features, labels in step:
            step.backward(cross_entropy(critic, features, labels))
        optimizers[0].step()
        critic.requires_grad_(False)
        for features, labels in step:
            step.backward(cross_entropy(critic, generator(features), labels))
        assert all(parameter.grad is None for parameter in critic.parameters())
        optimizers[1].step()

    assert not is_same(critic, small_model(1))


@pytest.mark.parametrize("logical_ranks", [1, 4])
def test_evaluating_after_the_batches_changes_no_bits(logical_ranks: int) -> None:
    def train(evaluates: bool) -> nn.Module:
        torch.manual_seed(2)
        model = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Dropout(0.3), nn.Linear(8, 2))
        for step in join(model, sgd(model), logical_ranks=logical_ranks):
            for features, labels in step:
                step.backward(cross_entropy(model, features, labels))
            if evaluates and step.number % 2:
                model.eval()
                with torch.no_grad():
                    model(digits().tensors[0] + torch.randn(1))
                model.train()
        return model

    assert is_same(train(evaluates=True), train(evaluates=False))


def test_random_numbers_after_the_batches_do_not_depend_on_the_share() -> None:
    """Noise that a script adds to whole gradients is the same in all workers."""
    drawn = []
    for logical_ranks in (1, 2, 4):
        model = small_model()
        numbers = []
        for step in join(model, sgd(model), logical_ranks=logical_ranks):
            for features, labels in step:
                step.backward(cross_entropy(model, features, labels) * torch.rand(()))
            numbers.append(torch.rand(()).item())
        drawn.append(numbers)

    assert drawn[0] == drawn[1] == drawn[2]
    assert len(set(drawn[0])) == STEPS


def test_leaving_the_loop_within_a_step_restores_its_buffers() -> None:
    model = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Linear(8, 2))
    for step in join(model, sgd(model)):
        for features, _ in step:
            model(features)
            break
        break

    assert isinstance(model[1], nn.BatchNorm1d)
    assert model[1].num_batches_tracked is not None and int(model[1].num_batches_tracked) == 0


def test_a_learning_rate_set_by_the_script_is_used() -> None:
    model = small_model()
    optimizer = sgd(model)

    for step in join(model, optimizer):
        for features, labels in step:
            step.backward(cross_entropy(model, features, labels))
        optimizer.param_groups[0]["lr"] = 0.5 / (1 + step.number)

    assert rates(optimizer) == [0.5 / STEPS]


def test_leaving_the_loop_applies_a_complete_step() -> None:
    model = small_model()
    job = join(model, sgd(model))

    for step in job:
        for features, labels in step:
            step.backward(cross_entropy(model, features, labels))
        if step.number == 4:
            break

    assert job.step == 5
    assert all(parameter.grad is None for parameter in model.parameters())
