"""The jobs of this machine's scheduler as a snapshot, from what it wrote down last."""

from __future__ import annotations

from dataclasses import dataclass

from elasticdl.errors import SpecError
from elasticdl.scheduler.local.queue import Queue
from elasticdl.scheduler.local.standing import Account, Report
from elasticdl.scheduler.local.submission import Submission
from elasticdl.scheduler.rate_table import RateTable
from elasticdl.scheduler.snapshot import Job, Node, Snapshot, Workers
from elasticdl.scheduler.snapshot_file import Pictured


@dataclass(frozen=True, slots=True)
class LocalPicture:
    pictured: Pictured
    policy: str  # that decides here


def picture(queue: Queue, now: float) -> LocalPicture:
    """SpecError where no scheduler ever served this queue."""
    report = Report.load(queue.plan)
    if report is None:
        raise SpecError(
            f"no scheduler has served {queue.root} yet: start `elasticdl scheduler`, or give --snapshot FILE, "
            "or --on kubernetes"
        )
    nodes = tuple(Node(name, devices) for name, devices in report.nodes.items())
    jobs = []
    for name, standing in report.jobs.items():
        if (submission := queue.find(name)) is not None:
            jobs.append(_job(submission, standing.given, standing.account))
    return LocalPicture(Pictured(Snapshot(now, nodes, tuple(jobs))), report.policy)


def _job(submission: Submission, given: Workers, account: Account) -> Job:
    speed = account.step * submission.devices / account.attained_s if account.attained_s > 0 else 0.0
    most = submission.maximum
    # Nobody wrote down more than a mean: taken as if each worker were worth as much as another.
    table = RateTable({"": ((1, speed), (most, speed * most)) if most > 1 else ((1, speed),)}) if speed > 0 else None
    left = float(max(account.total_steps - account.step, 0)) if account.total_steps and table else None
    return submission.job(
        workers=given,
        started_at=account.started_at,
        attained_s=account.attained_s,
        executed_s=account.executed_s,
        changed_at=account.changed_at,
        restarts=account.changes,
        most_workers=account.most_workers,
        rates=table,
        work_left=left,
        work_done=float(account.step) if table else 0.0,
    )
