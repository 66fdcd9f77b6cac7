from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elasticdl.data.plan import TrainingPlan, make_plan
from elasticdl.errors import DataError
from elasticdl.spec import DataSpec, PlanSpec
from tests.properties import examples


@st.composite
def plans(draw: st.DrawFn) -> TrainingPlan:
    batch = draw(st.integers(1, 50))
    drop_last = draw(st.booleans())
    return TrainingPlan(
        records=draw(st.integers(batch if drop_last else 1, 300)),
        global_batch=batch,
        logical_ranks=draw(st.integers(1, 12)),
        epochs=draw(st.integers(1, 3)),
        seed=draw(st.integers(0, 2**31)),
        shuffle=draw(st.booleans()),
        drop_last=drop_last,
        max_steps=draw(st.sampled_from([0, 0, 1, 5, 1000])),
        shard_records=draw(st.integers(1, 40)),
        window_shards=draw(st.integers(1, 4)),
    )


@settings(max_examples=examples(25))
@given(plans())
def test_the_slices_of_the_logical_ranks_are_the_batch(plan: TrainingPlan) -> None:
    for step in range(plan.total_steps):
        slices = plan.rank_slices(step, 0, plan.logical_ranks)

        assert np.concatenate(slices).tolist() == plan.batch(step).tolist()
        sizes = [len(part) for part in slices]
        assert sizes == sorted(sizes, reverse=True)
        assert sizes[0] >= 1 and sizes[0] - sizes[-1] <= 1


@settings(max_examples=examples(25))
@given(plans())
def test_every_epoch_trains_each_record_at_most_once_and_all_when_none_is_dropped(plan: TrainingPlan) -> None:
    for epoch in range(plan.epochs):
        first = epoch * plan.steps_per_epoch
        steps = [step for step in range(first, first + plan.steps_per_epoch) if step < plan.total_steps]
        seen = [record for step in steps for record in plan.batch(step).tolist()]

        assert len(set(seen)) == len(seen)
        if len(steps) == plan.steps_per_epoch and not plan.drop_last:
            assert sorted(seen) == list(range(plan.records))
        assert all(plan.epoch_of(step) == epoch for step in steps)


@settings(max_examples=examples(25))
@given(plans())
def test_the_records_trained_are_counted_as_they_are_planned(plan: TrainingPlan) -> None:
    trained = 0
    for step in range(plan.total_steps):
        assert plan.records_until(step) == trained
        assert plan.batch_size(step) == len(plan.batch(step))
        trained += len(plan.batch(step))

    assert plan.total_records == trained


@settings(max_examples=examples(25))
@given(plans())
def test_a_slice_does_not_depend_on_what_was_asked_before(plan: TrainingPlan) -> None:
    in_order = [plan.rank_slice(step, plan.logical_ranks - 1).tolist() for step in range(plan.total_steps)]

    backwards = [plan.rank_slice(step, plan.logical_ranks - 1).tolist() for step in reversed(range(plan.total_steps))]

    assert in_order == backwards[::-1]


def test_every_batch_of_a_drop_last_plan_is_whole() -> None:
    plan = TrainingPlan(records=103, global_batch=10, logical_ranks=4, epochs=2, drop_last=True)

    assert [len(plan.batch(step)) for step in range(plan.total_steps)] == [10] * 20
    assert plan.total_records == 200


def test_a_short_last_batch_gives_its_records_to_the_first_ranks() -> None:
    plan = TrainingPlan(records=12, global_batch=10, logical_ranks=4)

    assert [len(part) for part in plan.rank_slices(0, 0, 4)] == [3, 3, 2, 2]
    assert [len(part) for part in plan.rank_slices(1, 0, 4)] == [1, 1, 0, 0]


def test_max_steps_ends_the_plan_early_and_never_late() -> None:
    assert TrainingPlan(records=100, global_batch=10, logical_ranks=1, max_steps=4).total_records == 40
    assert TrainingPlan(records=100, global_batch=10, logical_ranks=1, max_steps=40).total_steps == 10


def test_no_records_and_no_whole_batch_are_refused_with_the_fix() -> None:
    with pytest.raises(DataError, match="zero records"):
        TrainingPlan(records=0, global_batch=4, logical_ranks=1)
    with pytest.raises(DataError, match="smaller --global_batch_size"):
        TrainingPlan(records=3, global_batch=4, logical_ranks=1, drop_last=True)


def test_steps_and_ranks_outside_the_plan_are_refused() -> None:
    plan = TrainingPlan(records=8, global_batch=4, logical_ranks=2)

    with pytest.raises(IndexError, match="step 2 of a plan of 2 steps"):
        plan.batch(2)
    with pytest.raises(IndexError, match="of 2"):
        plan.rank_slice(0, 2)


def test_the_plan_of_a_job_takes_window_and_shuffling_from_dataset_fn() -> None:
    spec = PlanSpec(global_batch_size=10, logical_ranks=4, shuffle=False, seed=9)

    plan = make_plan(100, spec, DataSpec(shard_records=8), shuffle=True, window_records=20)

    assert plan == TrainingPlan(100, 10, 4, seed=9, shuffle=True, shard_records=8, window_shards=3)


@settings(max_examples=examples(50))
@given(plans(), st.data())
def test_positions_are_the_batches_one_after_the_other(plan: TrainingPlan, data: st.DataObject) -> None:
    everything = [record for step in range(plan.total_steps) for record in plan.batch(step).tolist()]
    start = data.draw(st.integers(0, plan.total_records))
    stop = data.draw(st.integers(start, plan.total_records))

    assert len(everything) == plan.total_records
    assert plan.records_at(start, stop).tolist() == everything[start:stop]
