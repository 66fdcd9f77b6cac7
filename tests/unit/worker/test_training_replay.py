"""A newcomer that repeats updates from any point has the state of the workers that made them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.optim.lr_scheduler import ChainedScheduler, ExponentialLR, StepLR
from torch.optim.swa_utils import AveragedModel

from elasticdl.errors import ElasticDLError
from elasticdl.model.callbacks import ClipGradientNorm
from elasticdl.worker.rounds.donor import SKIPPED_STEP
from elasticdl.worker.training.adaptive_batch import Update
from elasticdl.worker.training.consistency import ConsistencyGuard
from elasticdl.worker.training.state import OptimizerStep, TrainingState
from elasticdl.worker.training.user_state import UserState
from tests.properties import examples
from tests.unit.worker.trainings import new_training, reduced_gradient

UPDATE = Update(8)


@dataclass(frozen=True)
class Move:
    """What a script does with one update."""

    calls: tuple[int, ...]  # optimizers, in order
    clips: bool
    untouched: frozenset[int]
    ends_step: bool


@st.composite
def moves(draw: st.DrawFn) -> Move:
    calls = draw(st.sampled_from([(), (0,), (1,), (0, 1), (1, 0)]))
    untouched = draw(st.frozensets(st.integers(0, 3), max_size=3))
    return Move(calls, draw(st.booleans()), untouched, draw(st.booleans()))


def average_and_schedule(model: nn.Module, optimizer: torch.optim.Optimizer) -> UserState:
    """A composed scheduler, and an average with noise that is drawn after each update."""
    average = AveragedModel(model)

    def update() -> None:
        average.update_parameters(model)
        with torch.no_grad():
            next(average.parameters()).add_(torch.rand(()) * 1e-3)

    scheduler = ChainedScheduler([StepLR(optimizer, 2, gamma=0.5), ExponentialLR(optimizer, 0.9)], optimizer)
    return UserState([scheduler], {"average": average}, update)


def trained_by_script(training: TrainingState, move: Move, number: int) -> list[OptimizerStep]:
    """One update as a script makes it; returns the optimizers' steps, as a donor hands them on."""
    touched = [index not in move.untouched for index in range(len(training.gradients.parameters))]
    training.open_update(reduced_gradient(training, number), UPDATE, {}, touched)
    if move.clips:
        nn.utils.clip_grad_norm_(training.model.parameters(), 0.5)
    for optimizer in move.calls:
        training.optimizers[optimizer].step()
    return training.close_update(is_last=move.ends_step)


def repeat(training: TrainingState, calls: list[OptimizerStep], *, ends_step: bool, is_explicit: bool) -> None:
    """One update as a newcomer repeats it, from the headers and gradients of a donor."""
    for number, call in enumerate(calls or [SKIPPED_STEP]):
        buffer = training.gradients.acquire()
        if call.gradient is not None:
            training.gradients.flat(buffer).copy_(call.gradient)
        header: dict[str, Any] = {
            **call.to_header(), "is_first": number == 0, "is_last": number >= len(calls) - 1, "ends_step": ends_step,
            "is_explicit": is_explicit,
        }  # fmt: skip
        training.replay_update(buffer, UPDATE, {}, header)


@given(st.lists(moves(), min_size=1, max_size=8), st.integers(0, 7))
@settings(max_examples=examples(40))
def test_a_newcomer_that_repeats_updates_from_any_point_holds_the_same_state(history: list[Move], point: int) -> None:
    member = new_training(average_and_schedule, optimizer_count=2, callbacks=[ClipGradientNorm(1.0)])
    newcomer = new_training(average_and_schedule, optimizer_count=2, callbacks=[ClipGradientNorm(1.0)])
    member.keeps_gradients = lambda: True
    member.is_explicit = True
    member.begin()
    point = min(point, len(history) - 1)

    for number, move in enumerate(history):
        if number == point:
            newcomer.load(member.capture())
        calls = trained_by_script(member, move, number)
        if number >= point:
            repeat(newcomer, calls, ends_step=move.ends_step, is_explicit=member.is_explicit)

    assert newcomer.position == member.position and newcomer.records == member.records
    assert newcomer.is_explicit == member.is_explicit
    assert ConsistencyGuard(1).digest(newcomer, is_whole=True) == ConsistencyGuard(1).digest(member, is_whole=True)


@given(st.integers(1, 6), st.integers(0, 5))
@settings(max_examples=examples(20))
def test_updates_applied_by_the_job_are_repeated_identically(steps: int, point: int) -> None:
    member, newcomer = new_training(average_and_schedule), new_training(average_and_schedule)
    member.keeps_gradients = lambda: True
    member.begin()

    for number in range(steps):
        if number == min(point, steps - 1):
            newcomer.load(member.capture())
        member.open_update(reduced_gradient(member, number), UPDATE, {})
        calls = member.close_update()
        if newcomer.has_state:
            repeat(newcomer, calls, ends_step=True, is_explicit=member.is_explicit)

    assert not newcomer.is_explicit
    assert ConsistencyGuard(1).digest(newcomer, is_whole=True) == ConsistencyGuard(1).digest(member, is_whole=True)


def test_an_update_without_records_leaves_the_optimizer_unchanged() -> None:
    training = new_training()
    training.begin()
    before = ConsistencyGuard(1).digest(training, is_whole=True)

    training.open_void_update(training.gradients.acquire())
    training.optimizer.step()
    training.close_void_update()

    assert ConsistencyGuard(1).digest(training, is_whole=True) == before


def test_a_step_may_end_after_any_of_its_updates() -> None:
    training = new_training()
    training.begin()
    training.open_update(reduced_gradient(training, 0), UPDATE, {})
    training.optimizer.step()
    training.close_update(is_last=False)
    newcomer = new_training()
    newcomer.load(training.capture())

    for state in (training, newcomer):
        state.end_step()
        state.end_step()

    assert (training.step, training.phase, training.records) == (newcomer.step, newcomer.phase, newcomer.records)
    assert (training.step, training.phase, training.records) == (1, 0, 8)


def test_an_update_that_the_script_leaves_unapplied_at_the_end_of_its_loop_counts_as_skipped() -> None:
    training = new_training(optimizer_count=2)
    training.begin()
    training.open_update(reduced_gradient(training, 0), UPDATE, {})

    assert training.close_update(is_left=True) == []
    assert training.step == 1


def test_an_update_that_nobody_applies_is_an_error_in_the_loop() -> None:
    training = new_training(optimizer_count=2)
    training.begin()
    training.open_update(reduced_gradient(training, 0), UPDATE, {})

    with pytest.raises(ElasticDLError, match="the script says which of them to apply"):
        training.close_update()


def test_the_loss_of_the_newest_step_comes_with_the_state() -> None:
    training, newcomer = new_training(), new_training()
    training.begin()
    training.loss = 0.25

    newcomer.load(training.capture())

    assert newcomer.loss == 0.25


def test_a_script_that_no_longer_applies_updates_is_refused_after_twenty() -> None:
    explicit, resumed = new_training(), new_training()
    explicit.begin()
    explicit.open_update(reduced_gradient(explicit, 0), UPDATE, {})
    explicit.optimizer.step()
    explicit.close_update()
    resumed.load(explicit.capture())

    for number in range(1, 21):
        resumed.open_update(reduced_gradient(resumed, number), UPDATE, {})
        resumed.close_update()

    resumed.open_update(reduced_gradient(resumed, 21), UPDATE, {})
    with pytest.raises(ElasticDLError, match=r"step 21: .* has not called it in 20 updates"):
        resumed.close_update()


def test_a_script_that_applies_some_updates_may_skip_as_many_as_it_likes() -> None:
    training = new_training()
    training.begin()

    for number in range(60):
        training.open_update(reduced_gradient(training, number), UPDATE, {})
        if number == 0:
            training.optimizer.step()
        training.close_update()

    assert training.step == 60 * UPDATE.passes
