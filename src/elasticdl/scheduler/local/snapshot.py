"""Builds a snapshot of this machine's jobs from the scheduler's last report."""

from __future__ import annotations

from dataclasses import dataclass

from elasticdl.errors import SpecError
from elasticdl.scheduler.accounts.report import JobAccount
from elasticdl.scheduler.accounts.submission import JobSubmission
from elasticdl.scheduler.local.queue import SubmissionQueue
from elasticdl.scheduler.models.rate_table import RateTable
from elasticdl.scheduler.snapshot import JobInfo, NodeInfo, Snapshot, WorkersByNode
from elasticdl.scheduler.snapshot_file import SnapshotWithUnits


@dataclass(frozen=True, slots=True)
class LocalSnapshot:
    """A snapshot of this machine's scheduler, and its policy."""

    snapshot: SnapshotWithUnits
    policy: str


def load_local_snapshot(queue: SubmissionQueue, now: float) -> LocalSnapshot:
    """Raises SpecError if no scheduler has served this queue."""
    report = queue.load_report()
    if report is None:
        raise SpecError(
            f"no scheduler has served {queue.root} yet: start `elasticdl scheduler`, or give --snapshot FILE, "
            "or --on kubernetes"
        )
    nodes = tuple(NodeInfo(name, devices) for name, devices in report.nodes.items())
    jobs = []
    for name, status in report.jobs.items():
        if (submission := queue.find(name)) is not None:
            jobs.append(_job_info(submission, status.allocated, status.account))
    return LocalSnapshot(SnapshotWithUnits(Snapshot(now, nodes, tuple(jobs))), report.policy)


def _job_info(submission: JobSubmission, workers: WorkersByNode, account: JobAccount) -> JobInfo:
    speed = account.step * submission.devices / account.attained_s if account.attained_s > 0 else 0.0
    max_workers = submission.max_workers
    # Only a mean speed is recorded, so the rate is assumed to be linear.
    table = (
        RateTable({"": ((1, speed), (max_workers, speed * max_workers)) if max_workers > 1 else ((1, speed),)})
        if speed > 0
        else None
    )
    work_left = float(max(account.total_steps - account.step, 0)) if account.total_steps and table else None
    return submission.to_job_info(
        workers=workers,
        started_at=account.started_at,
        attained_s=account.attained_s,
        executed_s=account.executed_s,
        changed_at=account.changed_at,
        restarts=account.changes,
        max_workers_so_far=account.max_workers,
        rates=table,
        work_left=work_left,
        work_done=float(account.step) if table else 0.0,
    )
