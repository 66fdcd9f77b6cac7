"""Callbacks decide by their arguments, and their state can be handed over at any moment."""

from __future__ import annotations

import json
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from elasticdl.errors import ModelError
from elasticdl.model.callbacks import (
    BestMetric,
    Callback,
    ClipGradientNorm,
    ClipGradientValue,
    EarlyStopping,
    ReduceLROnPlateau,
)


def test_a_bare_callback_does_nothing() -> None:
    callback, model = Callback(), nn.Linear(1, 1)

    callback.on_train_begin(model)
    callback.on_gradients(model, 0)
    callback.on_step_end(0, 1.0)
    callback.on_epoch_end(0)
    callback.on_evaluation(1, {})
    callback.on_train_end(model)
    callback.load_state_dict(callback.state_dict())

    assert callback.stop_reason is None


def test_training_stops_after_patience_runs_out() -> None:
    callback = EarlyStopping("accuracy", patience=2)

    for step, accuracy in ((10, 0.5), (20, 0.7), (30, 0.6)):
        callback.on_evaluation(step, {"accuracy": accuracy})
        assert callback.stop_reason is None
    callback.on_evaluation(40, {"accuracy": 0.7})

    assert callback.stop_reason == "accuracy has not improved on 0.7 at step 20 for 2 evaluations"


def test_an_improvement_below_min_delta_does_not_count() -> None:
    callback = EarlyStopping("loss", patience=1, mode="min", min_delta=0.1)

    callback.on_evaluation(1, {"loss": 1.0})
    callback.on_evaluation(2, {"loss": 0.95})

    assert callback.stop_reason is not None and callback.best_step == 1


def test_nan_is_never_the_best() -> None:
    callback = EarlyStopping("loss", patience=1, mode="min")

    callback.on_evaluation(1, {"loss": math.nan})

    assert callback.best_step is None
    assert callback.stop_reason == "loss has not improved on nothing for 1 evaluations"


def test_a_metric_that_is_not_measured_is_named_with_the_measured_ones() -> None:
    with pytest.raises(ModelError, match="'acuracy', but the evaluation has: accuracy, loss"):
        BestMetric("acuracy").on_evaluation(1, {"accuracy": 1.0, "loss": 0.1})


@given(st.lists(st.floats(0, 1), min_size=1, max_size=12), st.data())
def test_a_callback_with_restored_state_decides_the_same(values: list[float], data: st.DataObject) -> None:
    cut = data.draw(st.integers(0, len(values)))
    kind = data.draw(st.sampled_from([EarlyStopping, ReduceLROnPlateau]))
    old, new = kind("m", patience=3), kind("m", patience=3)

    for step, value in enumerate(values[:cut]):
        old.on_evaluation(step, {"m": value})
    new.load_state_dict(json.loads(json.dumps(old.state_dict())))
    for step, value in enumerate(values[cut:], start=cut):
        old.on_evaluation(step, {"m": value})
        new.on_evaluation(step, {"m": value})

    assert new.state_dict() == old.state_dict()
    assert old.best_value == max(values)
    assert new.stop_reason == old.stop_reason
    assert new.rate_factor == old.rate_factor


def test_the_gradient_is_scaled_to_the_norm() -> None:
    model = nn.Linear(2, 1, bias=False)
    model.weight.grad = torch.tensor([[3.0, 4.0]])

    ClipGradientNorm(1.0).on_gradients(model, 0)

    torch.testing.assert_close(model.weight.grad, torch.tensor([[0.6, 0.8]]))


def test_the_rate_is_reduced_on_every_plateau_down_to_its_minimum() -> None:
    callback = ReduceLROnPlateau("loss", factor=0.5, patience=2, mode="min", min_factor=0.2)
    factors = []

    for step, loss in enumerate((0.7, 0.6, 0.6, 0.65, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5)):
        callback.on_evaluation(step, {"loss": loss})
        factors.append(callback.rate_factor)

    assert factors == [1, 1, 1, 0.5, 0.5, 0.5, 0.25, 0.25, 0.2, 0.2, 0.2]
    assert (callback.best_step, callback.stop_reason) == (4, None)


@pytest.mark.parametrize("wrong", [{"factor": 1.0}, {"factor": 0}, {"patience": 0}, {"min_factor": 0}])
def test_a_factor_that_does_not_reduce_is_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="Received"):
        ReduceLROnPlateau("m", **wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("wrong", [{"patience": 0}, {"mode": "best"}, {"min_delta": -1}])
def test_wrong_settings_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="Received"):
        EarlyStopping("m", **wrong)  # type: ignore[arg-type]


def test_each_number_of_a_gradient_is_clipped() -> None:
    model = nn.Linear(3, 1, bias=False)
    model.weight.grad = torch.tensor([[-2.0, 0.25, 2.0]])

    ClipGradientValue(0.5).on_gradients(model, 0)

    assert model.weight.grad.tolist() == [[-0.5, 0.25, 0.5]]


@pytest.mark.parametrize("value", [0.0, -1.0, math.nan])
def test_an_empty_range_is_refused(value: float) -> None:
    with pytest.raises(ValueError, match="clip_value: expected a number above 0"):
        ClipGradientValue(value)
