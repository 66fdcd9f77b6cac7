"""From a master's status to the model of its job, and from the batch of a plan to the request to its master."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from elasticdl.rpc import elasticdl_pb2 as pb
from elasticdl.scheduler.accounts import progress, rates
from elasticdl.scheduler.accounts.events import ActionFailed, ActionSucceeded, JobProgress, JobRecovered, ResizeJob
from elasticdl.scheduler.accounts.report import JobAccount, ScheduledJobState
from elasticdl.scheduler.local.nodes import LOCAL_NODE
from elasticdl.scheduler.models.goodput import LogicalBatchModel
from elasticdl.scheduler.models.throughput import ThroughputModel, fit_throughput
from elasticdl.scheduler.snapshot import GradientNoise, SpeedSample
from tests.unit.scheduler.local.jobs import InOrder, status_reported, submission, submitted, turns

ADAPTIVE = {"logical_ranks": 4, "lr_scaling": "adascale"}
SPEEDS = (SpeedSample(1, 1, 64, 0.07, 0.06), SpeedSample(1, 2, 32, 0.05, 0.03))
KNOWN: dict[str, Any] = {
    "speeds": SPEEDS, "noise": GradientNoise(1.0, 3.0), "global_batch": 64, "batch_scale": 1, "max_batch_scale": 8
}  # fmt: skip


def fit(plan: dict[str, Any] | None = None, **progress_fields: Any) -> LogicalBatchModel | None:
    rates_fitted = rates.fit_rates(
        submission("a", plan=ADAPTIVE if plan is None else plan), JobProgress(**{**KNOWN, **progress_fields})
    )
    assert rates_fitted is None or isinstance(rates_fitted, LogicalBatchModel)
    return rates_fitted


def test_a_status_is_parsed_into_progress() -> None:
    status = pb.JobStatus(
        step=30, total_steps=100, progress=20.0, global_batch=64, batch_scale=2, max_batch_scale=8,
        gradient_square=1.0, gradient_variance=3.0,
        speeds=[pb.SpeedStatus(nodes=1, workers=2, local_batch=32, step_s=0.2, compute_s=0.1)],
    )  # fmt: skip
    rates_fitted = progress.parse_progress(status)

    assert rates_fitted.speeds == (SpeedSample(1, 2, 32, 0.2, 0.1),)
    assert (rates_fitted.noise, rates_fitted.work_done) == (GradientNoise(1.0, 3.0), 20.0)
    assert (rates_fitted.global_batch, rates_fitted.batch_scale, rates_fitted.max_batch_scale) == (64, 2, 8)


def test_a_requested_batch_scale_counts_as_current() -> None:
    scheduler = pb.BatchScale(step=10, scale=2)

    assert progress.parse_progress(pb.JobStatus(batch_scale=2, batch_scales=[scheduler])).batch_scale == 2
    waits = [scheduler, pb.BatchScale(step=-1, scale=4)]
    assert progress.parse_progress(pb.JobStatus(batch_scale=2, batch_scales=waits)).batch_scale == 4


def test_the_remaining_work_ends_with_the_steps_of_a_job() -> None:
    assert JobProgress(step=30).work_left is None
    assert JobProgress(step=30, total_steps=100, noise=GradientNoise(1.0, 3.0), batch_scale=1).work_left == 70.0
    # Two batches an update are worth 4 / (3 / 2 + 1) = 1.6 steps.
    scaled = JobProgress(step=30, total_steps=100, noise=GradientNoise(1.0, 3.0), batch_scale=2)
    assert scaled.work_left == pytest.approx(70 * 0.8)
    assert JobProgress(step=100, total_steps=100, batch_scale=4, work_done=50.0).work_left == 0.0


def test_an_adaptive_job_has_the_choice_of_batches_once_its_noise_is_known() -> None:
    rates_fitted = fit()

    assert rates_fitted is not None
    assert (rates_fitted.global_batch, rates_fitted.logical_ranks, rates_fitted.scales) == (64, 4, (1, 2, 3, 4, 6, 8))
    assert rates_fitted.work_per_s([1, 2], [1, 1])[0] > 0
    unknown = fit(noise=None)
    assert unknown is not None and unknown.scales == (1,)


@pytest.mark.parametrize("plan", [{"lr_scaling": "none"}, {"lr_scaling": "sqrt", "batch_schedule": {"10": 2}}, {}])
def test_a_job_whose_user_fixed_the_batch_has_only_that_batch(plan: dict[str, Any]) -> None:
    rates_fitted = fit(plan, batch_scale=2)

    assert rates_fitted is not None and rates_fitted.scales == (2,)
    assert rates_fitted.batch(2, 1) is None


@pytest.mark.parametrize("nothing", [{"speeds": ()}, {"global_batch": 0}])
def test_a_job_without_measurements_has_no_rates(nothing: dict[str, Any]) -> None:
    assert fit(**nothing) is None


def test_the_same_samples_are_fitted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    fits: list[Any] = []

    def fit_and_record(samples: Sequence[SpeedSample]) -> ThroughputModel:
        fits.append(samples)
        return fit_throughput(samples)

    monkeypatch.setattr(rates, "fit_throughput", fit_and_record)
    new = (*SPEEDS, SpeedSample(1, 4, 16, 0.041, 0.017))
    for noise in (1.0, 2.0, 3.0):
        fit(speeds=new, noise=GradientNoise(1.0, noise))

    assert fits == [new]


@pytest.fixture
def without_scipy(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(rates, "find_spec", lambda name: None if name == "scipy" else object())
    rates._can_fit.cache_clear()
    yield
    rates._can_fit.cache_clear()


@pytest.mark.usefixtures("without_scipy")
def test_without_scipy_nothing_is_fitted_and_one_warning_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    assert fit() is None and fit() is None

    (batch,) = caplog.messages
    assert batch.startswith("scipy missing") and "[scheduler]'" in batch


def running(**progress_fields: Any) -> Any:
    """Turns with one adaptive job, of which a master has just told `known`."""
    scheduler = turns(2, InOrder(passes=3), interval_s=1.0)
    scheduler.step([submitted("a", max_workers=2, plan=ADAPTIVE)], 1.0)
    scheduler.step([ActionSucceeded("a", 1.1), status_reported("a", 1.2, 2, **{**KNOWN, **progress_fields})], 1.3)
    return scheduler


def test_the_batch_of_a_plan_is_requested_once() -> None:
    scheduler = running()

    assert scheduler.step([], 2.0) == [ResizeJob("a", 2, batch_scale=3)]
    assert scheduler.report(2.0).jobs["a"].batch_scale == 3
    assert scheduler.step([ActionSucceeded("a", 2.1), status_reported("a", 2.05, 2, **KNOWN)], 2.2) == [], (
        "that was before"
    )
    assert scheduler.step([status_reported("a", 2.3, 2, **{**KNOWN, "batch_scale": 3})], 3.0) == []
    assert scheduler.step([status_reported("a", 3.5, 2, **{**KNOWN, "batch_scale": 1})], 3.6) == [
        ResizeJob("a", 2, batch_scale=3)
    ]


def test_a_batch_that_could_not_be_requested_is_due_again() -> None:
    scheduler = running()
    scheduler.step([], 2.0)

    assert scheduler.step([ActionFailed("a", 2.1), status_reported("a", 2.2, 2, **KNOWN)], 2.3) == []
    assert scheduler.step([status_reported("a", 3.4, 2, **KNOWN)], 3.5) == [ResizeJob("a", 2, batch_scale=3)]


def test_fewer_workers_and_a_new_batch_are_requested_together() -> None:
    scheduler = running()

    urgent = submitted("high", max_workers=1, submitted_at=1.5, priority=1)
    assert scheduler.step([urgent], 1.6) == [ResizeJob("a", 1, batch_scale=3)]


def test_a_job_that_does_not_train_yet_or_may_not_be_scaled_is_not_asked() -> None:
    assert running(batch_scale=0).step([], 2.0) == []
    assert running(noise=None).step([], 2.0) == []
    assert running(max_batch_scale=1).step([], 2.0) == []


def test_progress_of_a_restored_job_is_counted_in_steps_until_its_master_reports() -> None:
    scheduler = turns()
    scheduler.step(
        [
            JobRecovered(
                submission("a"),
                ScheduledJobState.RUNNING,
                {LOCAL_NODE: 2},
                JobAccount(step=7, total_steps=10, launches=1),
            )
        ],
        1.0,
    )

    (job,) = scheduler.job_table.snapshot(1.0).jobs
    assert (job.work_done, job.work_left) == (7.0, 3.0)
