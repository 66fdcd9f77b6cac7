"""Builds a snapshot of this machine's jobs from the scheduler's last report."""

from __future__ import annotations

from dataclasses import dataclass

from elasticdl.errors import SpecError
from elasticdl.scheduler.accounts.report import JobAccount, SchedulerReport
from elasticdl.scheduler.accounts.submission import JobSubmission
from elasticdl.scheduler.local.queue import SubmissionQueue
from elasticdl.scheduler.models.rate_table import RateTable
from elasticdl.scheduler.snapshot import JobInfo, NodeInfo, Snapshot, WorkersByNode
from elasticdl.scheduler.snapshot_file import SnapshotWithUnits


@dataclass(frozen=True, slots=True)
class LocalSnapshot:
    snapshot: SnapshotWithUnits
    policy: str  # that decides here


def load_local_snapshot(queue: SubmissionQueue, now: float) -> LocalSnapshot:
    """SpecError where no scheduler ever served this queue."""
    report = SchedulerReport.load(queue.report_path)
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
    # Nobody wrote down more than a mean: taken as if each worker were worth as much as another.
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
