"""A job of a measured application: its progress, its epochs, its batch."""

from __future__ import annotations

import pytest

from elasticdl.scheduler.models.goodput import AdaptiveBatchModel, FixedBatchModel, gain_ratio
from elasticdl.sim.traces.pollux import OracleRateModel, ProfiledWorkload
from tests.unit.sim.measured import LIMITS, application


def test_progress_is_the_gain_divided_by_the_step_time() -> None:
    """Two workers share a batch of 40: 20 records each, 0.4 s; with noise 1.43 times the square gain is 1.79 of 4."""
    job = ProfiledWorkload(application(), batch=40)
    job.place((2,), "", None)
    noise = application().noise(40, 0)

    assert job.rate() == pytest.approx(float(gain_ratio(noise, 4.0)) / 0.4)


def test_the_passes_of_a_step_wait_for_other_workers_once() -> None:
    """One worker alone makes two passes of 40: 0.5 s each, and nobody to wait for; two make one, and wait 0.1 s."""
    alone, two = ProfiledWorkload(application(), batch=80), ProfiledWorkload(application(), batch=80)
    alone.place((1,), "", None)
    two.place((2,), "", None)
    worth = float(gain_ratio(application().noise(80, 0), 8.0))

    assert alone.rate() == pytest.approx(worth / (2 * 0.5))
    assert two.rate() == pytest.approx(worth / 0.6)


def test_epochs_end_in_order() -> None:
    job = ProfiledWorkload(application(), batch=10)
    job.place((1,), "", None)

    for epoch in range(3):
        assert job.work_to_next_change() == pytest.approx(100.0)
        job.advance(60.0)
        assert job.work_to_next_change() == pytest.approx(40.0)
        assert job.report().work_left == pytest.approx(300.0 - 100.0 * epoch - 60.0)
        assert not job.is_done
        job.advance(40.0)
    assert job.is_done
    assert job.report().work_left == 0.0


def test_a_finished_job_does_nothing_after_a_new_placement() -> None:
    """As happens when it ends at the very moment of a decision."""
    job = ProfiledWorkload(application(), batch=None)
    job.place((1,), "", None)
    for _ in range(3):
        job.advance(job.work_to_next_change())
    job.place((2,), "", None)

    assert job.is_done and job.rate() == 0.0


def test_without_workers_nothing_is_done() -> None:
    job = ProfiledWorkload(application(), batch=10)
    job.place((1,), "", None)
    job.place((), "", None)

    assert job.rate() == 0.0
    assert not job.advance(5.0)
    assert job.report().work_done == 0.0


def test_a_job_has_measurements_from_its_first_steps_on() -> None:
    job = ProfiledWorkload(application(), batch=None)
    job.place((1,), "", None)
    assert job.report().rates is None and job.report().speeds == ()

    job.advance(1.0)
    report_now = job.report()

    assert isinstance(report_now.rates, AdaptiveBatchModel)
    assert [(sample.nodes, sample.workers, sample.local_batch) for sample in report_now.speeds] == [(1, 1, 10)]
    assert report_now.speeds[0].step_s == pytest.approx(0.2) and report_now.speeds[0].compute_s == pytest.approx(0.2)
    assert report_now.noise == application().noise(10, 0)


def test_an_adaptive_job_starts_with_the_initial_batch_then_uses_the_best_known_one() -> None:
    job = ProfiledWorkload(application(), batch=None)
    job.place((2,), "", None)
    first = job.rate()
    assert first == pytest.approx(float(gain_ratio(application().noise(10, 0), 1.0)) / 0.25)

    job.advance(1.0)

    rates = job.report().rates
    assert rates is not None
    batch = rates.batch(2, 1)
    assert batch is not None and LIMITS.initial <= batch.total_records(2) <= LIMITS.maximum
    step, sync = application().step_times_s((2,), batch.local_batch)
    seconds = step + (step - sync) * (batch.passes - 1)
    worth = float(gain_ratio(application().noise(batch.total_records(2), 0), batch.total_records(2) / 10))
    assert job.rate() == pytest.approx(worth / seconds)
    assert job.rate() > first


def test_each_worker_has_at_least_the_smallest_local_batch() -> None:
    job = ProfiledWorkload(application(), batch=None)
    job.place((2, 2, 2, 2), "", None)  # 8 · 5 records, more than the initial 10

    assert job.rate() == pytest.approx(float(gain_ratio(application().noise(40, 0), 4.0)) / 1.15)


def test_a_batch_fixed_by_the_user_is_unchanged() -> None:
    job = ProfiledWorkload(application(), batch=40)
    job.place((2,), "", None)
    job.advance(1.0)
    rates = job.report().rates

    assert isinstance(rates, FixedBatchModel)
    assert [sample.local_batch for sample in job.report().speeds] == [20]
    batch = rates.batch(2, 1)
    assert batch is not None and batch.total_records(2) == 40


def test_an_oracle_knows_true_times_and_steps() -> None:
    job = ProfiledWorkload(application(), batch=40, is_oracle=True)
    job.place((2,), "", None)
    report_now = job.report()

    assert isinstance(report_now.rates, OracleRateModel)
    assert report_now.rates.work_per_s([0, 2], [0, 1]) == pytest.approx([0.0, 1 / 0.4])
    assert report_now.rates.batch(2, 1) is not None
    # Recorded steps with a batch of 40, between those of 10 and of 80: from the end of the first epoch to the last.
    assert report_now.work_left == pytest.approx(application().iterations(40, 2) - application().iterations(40, 0))


def test_the_time_alone_is_that_of_the_application() -> None:
    assert ProfiledWorkload(application(), batch=10).isolated_duration_s(1) == application().isolated_duration_s(10, 1)
