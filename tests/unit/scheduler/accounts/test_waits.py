from __future__ import annotations

from elasticdl.scheduler.accounts.table import RunningJob, WaitingJob, estimate_waits


def test_jobs_ahead_take_freed_devices_first() -> None:
    running = [RunningJob("a", 2, 60.0), RunningJob("b", 2, 30.0)]

    assert estimate_waits(0, running, [WaitingJob("c", 2), WaitingJob("d", 1)]) == {"c": 30.0, "d": 60.0}


def test_the_wait_is_unknown_when_a_job_in_the_way_does_not_know_its_end() -> None:
    assert estimate_waits(1, [RunningJob("a", 2, None)], [WaitingJob("c", 2)]) == {"c": None}


def test_free_devices_mean_no_wait() -> None:
    assert estimate_waits(2, [], [WaitingJob("c", 2)]) == {"c": 0.0}


def test_no_job_grows_by_its_own_end() -> None:
    running = [RunningJob("a", 2, 5.0), RunningJob("b", 1, 9.0)]

    assert estimate_waits(0, running, [WaitingJob("a", 1), WaitingJob("c", 2)]) == {"a": None, "c": 5.0}
