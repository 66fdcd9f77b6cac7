"""A job with ps under the scheduler: its rows are checkpointed and restored with it."""

from __future__ import annotations

from tests import native
from tests.integration.job import Jobs
from tests.integration.scheduling import Scheduler

native.require()

from tests.integration.test_ps_hybrid import assert_each_record_counts_once, start  # noqa: E402


def test_a_suspended_job_with_ps_counts_each_record_once(jobs: Jobs) -> None:
    scheduler = Scheduler(jobs.home)
    try:
        scheduler.start(2)
        low = start(jobs, "low", "--queue", "--min_workers", "1", slow=True, pause_s=0.15)
        low.wait_members(2, step=5)
        high = start(jobs, "high", "--queue", "--priority", "1", "--min_workers", "2")
        scheduler.wait("low", lambda job: job.is_waiting, "waits")
        low.hurry()
        scheduler.wait_gone("high")
        scheduler.wait_gone("low")
    finally:
        scheduler.end()

    assert_each_record_counts_once(high)
    assert_each_record_counts_once(low)
    assert (low.directory.root / "previous-1").is_dir(), "it was suspended in between"
