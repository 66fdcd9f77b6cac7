"""Submissions, job tables and a simple policy for tests."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from elasticdl.scheduler.accounts.events import JobProgress, JobStatusReported, JobSubmitted
from elasticdl.scheduler.accounts.rates import fit_rates
from elasticdl.scheduler.accounts.submission import JobSubmission
from elasticdl.scheduler.accounts.table import JobTable
from elasticdl.scheduler.interface import Decision
from elasticdl.scheduler.local.nodes import LOCAL_NODE
from elasticdl.scheduler.local.scheduler import LocalScheduler
from elasticdl.scheduler.plan import Allocation, AllocationPlan
from elasticdl.scheduler.snapshot import JobInfo, NodeInfo, Snapshot


@dataclass(frozen=True)
class InOrder:
    """Gives every job its minimum, in order; then the first as much as it can use, then the second. For one node."""

    name: str = "in-order"
    is_rigid: bool = False
    interval_s: float = 0.0
    decides_on_events: bool = True
    adapts_batch: bool = False
    needs_oracle: bool = False
    passes: int = 0  # of a global batch, for jobs whose model and noise are known; 0: as they like

    def decide(self, snapshot: Snapshot, memory: Any) -> Decision:
        free = snapshot.total_devices
        queue = sorted(snapshot.jobs, key=lambda job: (job.submitted_at, job.name))
        counts = dict.fromkeys((job.name for job in queue), 0)
        for job in queue:
            if job.min_workers * job.devices <= free:
                counts[job.name] = job.min_workers
                free -= job.min_workers * job.devices
        for job in queue:
            if counts[job.name]:
                more = min(free // job.devices, job.max_workers - counts[job.name])
                counts[job.name] += more
                free -= more * job.devices
        return Decision(AllocationPlan({job.name: _allocation(job, counts[job.name], self.passes) for job in queue}))


def _allocation(job: JobInfo, count: int, passes: int) -> Allocation:
    chosen_batch = job.rates.batch(count, 1) if job.rates and job.noise and count and passes else None
    batch = replace(chosen_batch, passes=passes) if chosen_batch else None
    return Allocation({LOCAL_NODE: count} if count else {}, f"{count} of {job.max_workers} in order", batch=batch)


def submission(
    name: str,
    min_workers: int = 1,
    max_workers: int = 4,
    *,
    submitted_at: float = 0.0,
    priority: int = 0,
    devices: int = 1,
    plan: Mapping[str, Any] | None = None,
) -> JobSubmission:
    spec = {"plan": dict(plan)} if plan else {}
    return JobSubmission(name, submitted_at, min_workers, max_workers, max_workers, devices, priority, spec=spec)


def submitted(name: str, min_workers: int = 1, max_workers: int = 4, **more: Any) -> JobSubmitted:
    return JobSubmitted(submission(name, min_workers, max_workers, **more))


def status_reported(
    name: str, reported_at: float, desired: int, live: int | None = None, phase: str = "running", **more: Any
) -> JobStatusReported:
    return JobStatusReported(name, reported_at, phase, desired, desired if live is None else live, JobProgress(**more))


def turns(devices: int = 4, policy: Any = InOrder(), interval_s: float | None = None) -> LocalScheduler:
    return LocalScheduler(policy, JobTable((NodeInfo(LOCAL_NODE, devices),), fit_rates), interval_s)


def allocated_workers(scheduler: LocalScheduler) -> dict[str, int]:
    return {name: entry.worker_count for name, entry in scheduler.job_table.entries.items()}
