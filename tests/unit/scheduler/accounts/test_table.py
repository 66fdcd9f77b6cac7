"""Events in, actions out: when jobs are started, scaled and suspended."""

from __future__ import annotations

import pytest

from elasticdl.scheduler.accounts.events import (
    ActionFailed,
    ActionSucceeded,
    CloseJob,
    JobExited,
    JobLost,
    JobRecovered,
    JobStopRequested,
    ResizeJob,
    StartJob,
    StopJob,
    SuspendJob,
)
from elasticdl.scheduler.accounts.report import JobAccount, ScheduledJobState
from elasticdl.scheduler.accounts.table import MAX_LOSSES, RETRY_S
from elasticdl.scheduler.local.nodes import LOCAL_NODE
from elasticdl.scheduler.snapshot import GradientNoise, SpeedSample
from tests.unit.scheduler.local.jobs import allocated_workers, status_reported, submission, submitted, turns


def test_a_job_starts_at_once_on_free_devices() -> None:
    scheduler = turns(devices=3)

    assert scheduler.step([submitted("a")], 1.0) == [StartJob("a", 3, resumes=False)]
    assert scheduler.step([ActionSucceeded("a", 1.1)], 1.2) == []


def test_a_job_has_its_devices_when_the_previous_job_has_released_them() -> None:
    scheduler = turns(devices=3)
    scheduler.step([submitted("low", submitted_at=1.0)], 1.0)
    scheduler.step([ActionSucceeded("low", 1.1), status_reported("low", 1.2, 3)], 1.3)
    scheduler.step([submitted("high", 2, 2, submitted_at=2.0, priority=1)], 2.0)
    account = scheduler.report(2.0).jobs["high"].account
    assert (account.started_at, account.launched_at) == (2.0, None), "its devices are in the plan, and not free"

    assert scheduler.step([ActionSucceeded("low", 2.1), status_reported("low", 2.3, 1)], 2.4) == [
        StartJob("high", 2, resumes=False)
    ]
    assert scheduler.report(2.5).jobs["high"].account.launched_at == 2.4


def test_a_second_job_starts_on_the_remaining_devices_and_grows_when_the_first_ends() -> None:
    scheduler = turns(devices=3)
    scheduler.step([submitted("a", max_workers=2)], 1.0)

    assert scheduler.step([ActionSucceeded("a", 1.1), submitted("b", submitted_at=1.5)], 2.0) == [
        StartJob("b", 1, resumes=False)
    ]
    assert scheduler.step([ActionSucceeded("b", 2.1), status_reported("b", 2.2, 1)], 2.3) == []
    assert scheduler.step([JobExited("a", "succeeded")], 3.0) == [ResizeJob("b", 3)]


def test_growing_jobs_wait_until_shrinking_ones_have_released_devices() -> None:
    scheduler = turns(devices=3)
    scheduler.step([submitted("low", max_workers=3)], 1.0)
    scheduler.step([ActionSucceeded("low", 1.1), status_reported("low", 1.2, 3)], 1.3)

    assert scheduler.step([submitted("high", max_workers=2, submitted_at=2.0, priority=1)], 2.0) == [
        ResizeJob("low", 1)
    ]
    assert allocated_workers(scheduler) == {"low": 1, "high": 2}
    assert scheduler.step([ActionSucceeded("low", 2.1), status_reported("low", 2.2, 1, live=3)], 2.3) == [], (
        "its workers are still there"
    )
    assert scheduler.step([status_reported("low", 2.4, 1, live=2)], 2.5) == [], "not all of its devices are free"
    assert scheduler.step([status_reported("low", 2.6, 1, live=1)], 2.7) == [StartJob("high", 2, resumes=False)]


def test_a_job_without_devices_is_suspended_and_continues_later() -> None:
    scheduler = turns(devices=2)
    scheduler.step([submitted("low")], 1.0)
    scheduler.step([ActionSucceeded("low", 1.1), status_reported("low", 1.2, 2)], 1.3)
    urgent = submitted("high", min_workers=2, max_workers=2, submitted_at=2.0, priority=1)

    (suspension,) = scheduler.step([urgent], 2.0)
    assert isinstance(suspension, SuspendJob) and suspension.name == "low"
    assert scheduler.step([ActionSucceeded("low", 2.1), status_reported("low", 2.2, 2, phase="stopping")], 2.3) == []
    assert scheduler.step([JobExited("low", "stopped")], 3.0) == [StartJob("high", 2, resumes=False)]
    assert scheduler.step([ActionSucceeded("high", 3.1), JobExited("high", "succeeded")], 9.0) == [
        StartJob("low", 2, resumes=True)
    ]


def test_observations_from_before_an_action_are_ignored() -> None:
    scheduler = turns(devices=2)
    scheduler.step([submitted("a")], 1.0)
    scheduler.step([ActionSucceeded("a", 1.1), status_reported("a", 1.2, 2)], 1.3)
    scheduler.step([submitted("b", submitted_at=2.0, priority=1, max_workers=1)], 2.0)  # a shrinks to one

    assert scheduler.step([ActionSucceeded("a", 2.1), status_reported("a", 2.05, 2, live=2)], 2.2) == []


def test_a_users_scaling_is_reverted() -> None:
    scheduler = turns(devices=2)
    scheduler.step([submitted("a")], 1.0)
    scheduler.step([ActionSucceeded("a", 1.1)], 1.2)

    assert scheduler.step([status_reported("a", 2.0, desired=1)], 2.1) == [ResizeJob("a", 2)]


def test_a_failed_action_is_retried_after_a_delay() -> None:
    scheduler = turns(devices=4)
    scheduler.step([submitted("a", max_workers=2)], 1.0)
    scheduler.step([ActionSucceeded("a", 1.1), submitted("b", submitted_at=1.2)], 1.3)
    scheduler.step([ActionSucceeded("b", 1.4), status_reported("b", 1.5, 2)], 1.6)
    assert scheduler.step([JobExited("a", "failed")], 2.0) == [ResizeJob("b", 4)]

    assert scheduler.step([ActionFailed("b", 2.1)], 2.2) == []
    assert scheduler.step([status_reported("b", 2.3, 2)], 2.2 + RETRY_S + 0.1) == [ResizeJob("b", 4)]


def test_a_stop_not_requested_by_the_scheduler_ends_the_job() -> None:
    scheduler = turns()
    scheduler.step([submitted("a")], 1.0)

    scheduler.step([ActionSucceeded("a", 1.1), JobExited("a", "stopped")], 2.0)

    assert allocated_workers(scheduler) == {}


def test_a_job_whose_owner_stops_it_while_it_is_suspended_does_not_come_back() -> None:
    scheduler = turns(devices=1)
    scheduler.step([submitted("low")], 1.0)
    scheduler.step([ActionSucceeded("low", 1.1), submitted("high", submitted_at=2.0, priority=1, max_workers=1)], 2.0)

    scheduler.step([ActionSucceeded("low", 2.1), JobStopRequested("low"), JobExited("low", "stopped")], 3.0)

    assert allocated_workers(scheduler) == {"high": 1}


def test_a_waiting_job_that_its_user_stops_is_closed() -> None:
    scheduler = turns(devices=1)
    scheduler.step([submitted("a"), submitted("b", submitted_at=1.0)], 1.0)

    (closing,) = scheduler.step([JobStopRequested("b")], 2.0)

    assert closing == CloseJob("b", "stopped", "removed from the queue by the user")


def test_a_running_job_that_its_user_stops_is_stopped_once_and_its_devices_are_planned_at_once() -> None:
    scheduler = turns(devices=1)
    scheduler.step([submitted("a"), submitted("b", submitted_at=1.0)], 1.0)

    assert scheduler.step([ActionSucceeded("a", 1.1), JobStopRequested("a")], 2.0) == [StopJob("a")]
    assert scheduler.step([ActionSucceeded("a", 2.1), JobStopRequested("a")], 2.2) == []
    assert allocated_workers(scheduler)["b"] == 1, "planned, though not yet free"
    assert scheduler.step([JobExited("a", "stopped")], 3.0) == [StartJob("b", 1, resumes=False)]


def test_a_job_that_can_never_fit_is_closed_with_the_reason() -> None:
    (closing,) = turns(devices=4).step([submitted("wide", min_workers=5, max_workers=8)], 1.0)

    assert isinstance(closing, CloseJob) and closing.phase == "failed"
    assert closing.reason == ("can never run here: needs 5 workers of 1 device, the empty cluster has room for 4")


def test_workers_with_many_threads_take_many_devices() -> None:
    scheduler = turns(devices=5)

    assert scheduler.step([submitted("a", devices=2)], 1.0) == [StartJob("a", 2, resumes=False)]


def test_a_job_that_has_run_is_not_ended_if_it_no_longer_fits() -> None:
    scheduler = turns(devices=2)

    actions = scheduler.step(
        [JobRecovered(submission("a", min_workers=3), ScheduledJobState.WAITING, {}, JobAccount(launches=1))], 1.0
    )

    assert actions == []
    assert "can never run here" in scheduler.report(1.0).jobs["a"].reason


def test_a_job_whose_processes_are_gone_continues_from_its_checkpoint() -> None:
    scheduler = turns(devices=2)
    scheduler.step([submitted("a")], 1.0)

    assert scheduler.step([ActionSucceeded("a", 1.1), JobLost("a")], 2.0) == [StartJob("a", 2, resumes=True)]


def test_a_job_whose_processes_are_gone_again_and_again_has_failed() -> None:
    scheduler = turns(devices=2)
    actions = scheduler.step([submitted("a")], 1.0)
    for _ in range(MAX_LOSSES):
        assert isinstance(actions[0], StartJob)
        actions = scheduler.step([ActionSucceeded("a", 1.1), JobLost("a")], 2.0)

    assert isinstance(actions[0], CloseJob) and actions[0].phase == "failed"


def test_losses_with_progress_between_them_do_not_accumulate() -> None:
    scheduler = turns(devices=2)
    scheduler.step([submitted("a")], 1.0)
    for round_ in range(1, 2 * MAX_LOSSES):
        step = status_reported("a", round_ + 0.5, 2, step=10 * round_)
        assert scheduler.step([ActionSucceeded("a", float(round_)), step, JobLost("a")], round_ + 0.6) == [
            StartJob("a", 2, resumes=True)
        ]


def test_a_restarted_scheduler_leaves_a_running_job_unchanged() -> None:
    scheduler = turns(devices=4)
    account = JobAccount(started_at=0.0, attained_s=30.0, launches=1, max_workers=3)
    recovered = JobRecovered(submission("a", max_workers=3), ScheduledJobState.RUNNING, {LOCAL_NODE: 3}, account)

    assert scheduler.step([recovered, status_reported("a", 9.0, 3)], 10.0) == []
    assert scheduler.step([], 12.0) == []
    assert scheduler.job_table.snapshot(12.0).jobs[0].attained_s == pytest.approx(30.0 + 2 * 3)


def test_an_interrupted_suspension_is_completed_by_the_next_scheduler() -> None:
    scheduler = turns(devices=1)
    low = JobRecovered(
        submission("low"), ScheduledJobState.SUSPENDING, {}, JobAccount(started_at=0.0, launches=1, max_workers=1)
    )
    high = JobRecovered(
        submission("high", priority=1, max_workers=1),
        ScheduledJobState.WAITING,
        {LOCAL_NODE: 1},
        JobAccount(started_at=0.0),
    )

    (suspension,) = scheduler.step([low, high], 10.0)
    assert isinstance(suspension, SuspendJob)
    assert scheduler.step([ActionSucceeded("low", 10.1), JobExited("low", "stopped")], 11.0) == [
        StartJob("high", 1, resumes=False)
    ]


def test_accounts_record_the_time_and_devices_of_a_job() -> None:
    scheduler = turns(devices=4)
    scheduler.step([submitted("a")], 10.0)
    scheduler.step([ActionSucceeded("a", 10.1), submitted("b", submitted_at=20.0, priority=1, max_workers=3)], 20.0)

    (job,) = [job for job in scheduler.job_table.snapshot(25.0).jobs if job.name == "a"]

    assert (job.started_at, job.changed_at, job.restarts, job.max_workers_so_far) == (10.0, 20.0, 1, 4)
    assert (job.attained_s, job.executed_s) == (pytest.approx(4 * 10 + 1 * 5), pytest.approx(15))


def test_a_job_status_has_the_reason_and_the_wait_time() -> None:
    scheduler = turns(devices=2)
    scheduler.step([submitted("a"), submitted("b", submitted_at=1.0), submitted("c", submitted_at=2.0)], 1.0)
    scheduler.step(
        [
            ActionSucceeded("a", 1.1),
            ActionSucceeded("b", 1.1),
            status_reported("a", 2.0, 1, remaining_s=30.0),
            status_reported("b", 2.0, 1),
        ],
        2.1,
    )

    waiting = scheduler.report(3.0).jobs["c"]

    assert waiting.is_waiting
    assert waiting.reason == "0 of 4 in order"
    assert waiting.expected_wait_s == 30.0


def test_measurements_survive_a_suspension() -> None:
    scheduler = turns(devices=2)
    estimate, two = SpeedSample(1, 1, 8, 0.5, 0.4), SpeedSample(1, 2, 4, 0.3, 0.2)
    scheduler.step([submitted("a")], 1.0)
    scheduler.step(
        [
            ActionSucceeded("a", 1.1),
            status_reported("a", 2.0, 2, step=30, total_steps=90, speeds=(two,), noise=GradientNoise(1.0, 2.0)),
        ],
        2.1,
    )

    scheduler.step([status_reported("a", 3.0, 1, phase="pending")], 3.1)
    (starting,) = scheduler.job_table.snapshot(3.2).jobs
    scheduler.step([status_reported("a", 4.0, 1, step=31, total_steps=90, speeds=(estimate,))], 4.1)
    (running,) = scheduler.job_table.snapshot(4.2).jobs

    assert (starting.work_done, starting.work_left) == (30.0, 60.0)
    assert (running.work_done, running.work_left) == (31.0, 59.0)
    assert (set(running.speeds), running.noise) == ({estimate, two}, GradientNoise(1.0, 2.0))
