"""One job in the job table: its submission, what the plan allocates to it, and what it really has."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from elasticdl.scheduler.accounts.events import JobProgress
from elasticdl.scheduler.accounts.progress import compute_batch_scale
from elasticdl.scheduler.accounts.report import JobAccount, ScheduledJobState
from elasticdl.scheduler.accounts.submission import JobSubmission
from elasticdl.scheduler.interface import BatchConfig, RateModel
from elasticdl.scheduler.plan import Allocation
from elasticdl.scheduler.snapshot import JobInfo, WorkersByNode

DEFAULT_CHANGE_COST_S = 0.5  # of a change of workers, before one was measured

FitRates = Callable[[JobSubmission, JobProgress], RateModel | None]
"""Fits a rate model, in steps per second, to what was measured; returns None if nothing was measured yet."""


def fit_no_rates(submission: JobSubmission, progress: JobProgress) -> RateModel | None:
    return None


@dataclass(slots=True)
class JobEntry:
    """A job, its state, and the difference between the plan and reality."""

    submission: JobSubmission
    state: ScheduledJobState = ScheduledJobState.WAITING
    allocated: WorkersByNode = field(default_factory=dict)  # by the last plan
    reason: str = "submitted; not yet decided on"
    expected_wait_s: float | None = None
    batch: BatchConfig | None = None  # by the last plan; None: the job's own
    allocated_at: float = 0.0
    account: JobAccount = field(default_factory=JobAccount)
    charged_until: float = 0.0  # the account includes usage up to this time
    progress: JobProgress = field(default_factory=JobProgress)
    # What the job really has
    phase: str = ""  # reported by its master
    desired_workers: int = 0  # reported by its master, or what we requested from it
    live_workers: int = 0
    batch_scale: int = 0  # reported by its master, or what we requested from it; 0: unknown
    is_busy: bool = False  # one of our actions is running
    last_action_at: float = -math.inf  # older reports do not count
    retry_at: float = -math.inf  # after a failed action
    # How the job will end
    is_stop_requested: bool = False  # by the user
    rejection_reason: str = ""  # why it can never run here

    @property
    def name(self) -> str:
        return self.submission.name

    def can_act(self, now: float) -> bool:
        return not self.is_busy and now >= self.retry_at

    @property
    def worker_count(self) -> int:
        """The number of workers allocated by the plan."""
        return sum(self.allocated.values())

    @property
    def held_devices(self) -> int:
        """Devices that no other job may have now."""
        return (
            0
            if self.state is ScheduledJobState.WAITING
            else max(self.desired_workers, self.live_workers) * self.submission.devices
        )

    @property
    def planned_batch_scale(self) -> int:
        """The number of global batches of an update by the last plan; 0: the plan does not decide it."""
        batch, progress = self.batch, self.progress
        if batch is None or not self.worker_count or not progress.global_batch or not self.submission.is_adaptive:
            return 0
        return compute_batch_scale(batch, self.worker_count, progress.global_batch, progress.max_batch_scale)

    @property
    def batch_scale_to_set(self) -> int:
        """The batch scale to request from the master; 0: none, or the job does not train yet."""
        is_known = self.phase == "running" and self.batch_scale > 0
        return self.planned_batch_scale if is_known and self.planned_batch_scale != self.batch_scale else 0

    @property
    def queue_order(self) -> tuple[int, float, str]:
        """Sorts the jobs that go first to the front."""
        return -self.submission.priority, self.submission.submitted_at, self.name

    @property
    def was_launched(self) -> bool:
        return self.account.launches > 0

    def apply_allocation(self, allocation: Allocation, now: float) -> None:
        """Records what the plan allocates from now on."""
        self.reason, self.expected_wait_s = allocation.reason, allocation.expected_wait_s
        self.batch = allocation.batch
        if dict(allocation.workers) == dict(self.allocated):
            return
        account, count = self.account, allocation.worker_count
        if account.started_at is None:
            self.account = replace(account, started_at=now, changed_at=now, max_workers=count)
        else:
            max_workers = max(account.max_workers, count)
            self.account = replace(account, changed_at=now, changes=account.changes + 1, max_workers=max_workers)
        self.allocated, self.allocated_at = dict(allocation.workers), now

    def charge_until(self, now: float) -> None:
        """Adds the usage since the last charge to the account."""
        seconds, self.charged_until = max(now - self.charged_until, 0.0), max(now, self.charged_until)
        if self.allocated:
            devices = self.worker_count * self.submission.devices
            attained_s, executed_s = self.account.attained_s + devices * seconds, self.account.executed_s + seconds
            self.account = replace(self.account, attained_s=attained_s, executed_s=executed_s)

    def to_job_info(self, fit_rates: FitRates) -> JobInfo:
        account, progress = self.account, self.progress
        change_cost_s = progress.change_cost_s
        return self.submission.to_job_info(
            workers=dict(self.allocated),
            started_at=account.started_at,
            attained_s=account.attained_s,
            executed_s=account.executed_s,
            changed_at=account.changed_at,
            restarts=account.changes,
            change_cost_s=DEFAULT_CHANGE_COST_S if change_cost_s is None else change_cost_s,
            max_workers_so_far=account.max_workers,
            speeds=progress.speeds,
            noise=progress.noise,
            rates=fit_rates(self.submission, progress),
            work_left=progress.work_left,
            work_done=progress.work_done or float(progress.step),
        )
