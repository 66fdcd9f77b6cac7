from __future__ import annotations

import json
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from elasticdl.collective.gradients import GradientBuffers
from elasticdl.collective.tree import ReductionTree
from elasticdl.data.plan import TrainingPlan
from elasticdl.spec import LrScaling
from elasticdl.worker.rounds.step_report import StepReportLayout
from elasticdl.worker.training.adaptive_batch import (
    AdaptiveBatch,
    BatchScaleChange,
    NoiseEstimate,
    Update,
    newest_change,
)
from elasticdl.worker.training.state import TrainingState

KNOWN = NoiseEstimate(2.0, 6.0)


def batch(rule: LrScaling, scale: int = 1) -> AdaptiveBatch:
    adaptive_batch = AdaptiveBatch(rule, 32)
    adaptive_batch.begin()
    adaptive_batch.scale = scale
    return adaptive_batch


@pytest.mark.parametrize(
    ("rule", "expected"),
    [(LrScaling.ADASCALE, 8 / (6 / 4 + 2)), (LrScaling.SQRT, 2.0), (LrScaling.LINEAR, 4.0), (LrScaling.NONE, 1.0)],
)
def test_each_rule_scales_the_learning_rate_of_four_batches(rule: LrScaling, expected: float) -> None:
    assert batch(rule, 4).record_update(Update(128, 4, 4.0, KNOWN)) == pytest.approx(expected)


@pytest.mark.parametrize("rule", list(LrScaling))
@pytest.mark.parametrize("scale", [1.0, 0.3])
def test_a_single_batch_is_never_scaled_not_even_a_short_one(rule: LrScaling, scale: float) -> None:
    assert batch(rule).record_update(Update(32, 1, scale, KNOWN)) == 1.0


def test_an_update_shortened_by_the_end_of_an_epoch_is_scaled_by_its_actual_batches() -> None:
    assert batch(LrScaling.LINEAR, 4).record_update(Update(80, 3, 2.5, KNOWN)) == 2.5


def test_progress_counts_updates_by_their_gain() -> None:
    counted = batch(LrScaling.LINEAR, 4)
    counted.record_update(Update(32, 1, 1.0, KNOWN))
    counted.record_update(Update(128, 4, 4.0))

    assert counted.progress == pytest.approx(1 + 8 / (6 / 4 + 2))


def test_a_change_applies_from_the_next_update_on() -> None:
    changed = batch(LrScaling.LINEAR)
    assert changed.record_update(Update(32, 1, 1.0, change=1, batch_scale=4)) == 1.0

    assert (changed.change, changed.scale) == (1, 4)


@given(st.integers(1, 40), st.integers(1, 9), st.integers(1, 3), st.integers(0, 60))
def test_updates_take_every_step_once_and_never_cross_epochs(
    records: int, scale: int, epochs: int, max_steps: int
) -> None:
    plan = TrainingPlan(records=records, global_batch=3, logical_ranks=2, epochs=epochs, max_steps=max_steps)
    taken, step = [], 0
    while step < plan.total_steps:
        passes = batch(LrScaling.SQRT, scale).passes(step, plan)
        update_steps = list(range(step, step + passes))
        assert 1 <= passes <= scale and len({plan.epoch_of(number) for number in update_steps}) == 1
        taken += update_steps
        step += passes

    assert taken == list(range(plan.total_steps))


def test_the_state_and_an_update_survive_json_to_the_bit() -> None:
    before = batch(LrScaling.ADASCALE, 3)
    before.record_update(Update(96, 3, 3.0, NoiseEstimate(1 / 3, 1 / 7), 8, 5, 2))
    update = Update(31, 2, 31 / 32, NoiseEstimate(1 / 3, 1 / 7), 8, 2, 5)

    after = batch(LrScaling.ADASCALE)
    after.load_state_dict(json.loads(json.dumps(before.state_dict())), 9)

    assert after.state_dict() == before.state_dict()
    assert Update.from_header(json.loads(json.dumps(update.to_header()))) == update
    assert Update.from_header(json.loads(json.dumps(Update(3).to_header()))) == Update(3)


def test_a_checkpoint_of_another_run_keeps_the_scale_but_not_the_number_of_its_change() -> None:
    earlier = AdaptiveBatch(LrScaling.SQRT, 32, run="a")
    earlier.scale, earlier.change = 4, 7
    later = AdaptiveBatch(LrScaling.SQRT, 32, run="b")
    later.load_state_dict(earlier.state_dict(), 12)

    assert (later.scale, later.change) == (4, 0)


def test_a_checkpoint_without_a_scale_means_an_unchanged_batch() -> None:
    loaded = batch(LrScaling.SQRT, 4)
    loaded.load_state_dict({}, 12)

    assert (loaded.scale, loaded.change, loaded.progress) == (1, 0, 12.0)


@pytest.mark.parametrize(
    ("step", "known", "expected"),
    [
        (4, (0, 1), (0, 1)),  # none has come
        (5, (0, 1), (1, 2)),
        (9, (1, 2), (1, 2)),
        (50, (0, 1), (2, 8)),  # one is passed over
        (5, (3, 4), (3, 4)),  # a worker that does not know of a newer change does not revert it
    ],
)
def test_the_newest_change_whose_step_is_reached_applies(
    step: int, known: tuple[int, int], expected: tuple[int, int]
) -> None:
    assert newest_change([BatchScaleChange(1, 5, 2), BatchScaleChange(2, 10, 8)], step, known) == expected


def test_a_change_without_a_step_applies_at_once() -> None:
    assert newest_change([BatchScaleChange(1, 50, 2), BatchScaleChange(2, -1, 3)], 7, (0, 1)) == (2, 3)


def test_a_schedule_may_start_at_the_first_step() -> None:
    begun = AdaptiveBatch(LrScaling.SQRT, 32, {0: 4, 100: 8})
    begun.begin()

    assert (begun.scale, begun.change) == (4, 1)


def test_rates_are_scaled_for_one_update_and_restored() -> None:
    parameters = [nn.Parameter(torch.zeros(2)), nn.Parameter(torch.zeros(2))]
    groups: list[dict[str, Any]] = [{"params": [parameters[0]]}, {"params": [parameters[1]], "lr": 0.3}]
    optimizer = torch.optim.SGD(groups, lr=0.1)
    gradients = GradientBuffers(parameters, ReductionTree(1), StepReportLayout(1).length, ordered=True)
    batch = AdaptiveBatch(LrScaling.SQRT, 1)
    training = TrainingState(
        nn.ParameterList(parameters), [optimizer], gradients, (), lambda step: None, batch
    ).register_hooks()
    training.begin()

    training.apply_update(torch.ones(gradients.length), Update(4, passes=4, scale=4.0), {})

    assert [group["lr"] for group in optimizer.param_groups] == [0.1, 0.3]
    torch.testing.assert_close(parameters[0].detach(), torch.full((2,), -0.2))
    torch.testing.assert_close(parameters[1].detach(), torch.full((2,), -0.6))
