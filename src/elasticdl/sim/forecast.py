"""Forecasts what a new job would get on a cluster: decides with and without it, then simulates until it starts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from elasticdl.errors import SpecError
from elasticdl.scheduler import priorities
from elasticdl.scheduler.interface import BatchConfig, Policy
from elasticdl.scheduler.models.estimates import SpeedEstimates
from elasticdl.scheduler.models.rate_table import RateTable
from elasticdl.scheduler.placement.assignment import sort_by_submission
from elasticdl.scheduler.plan import AllocationPlan
from elasticdl.scheduler.snapshot import JobInfo, Snapshot
from elasticdl.sim.engine import SimulationConfig, SimulationEngine
from elasticdl.sim.interface import ChangeCost, JobReport, WorkersPerNode
from elasticdl.sim.traces.recorded import ConstantRateWorkload
from elasticdl.sim.traces.trace import TraceJob

HORIZON_S = 7 * 86400.0


@dataclass(frozen=True, slots=True)
class AllocationChange:
    """How the workers of an existing job change because of the new one."""

    job: str
    workers_without_job: int
    workers_with_job: int
    reason: str


@dataclass(frozen=True, slots=True)
class Forecast:
    """What a new job would get. `wait_s` is None if it would not start within a week, or never."""

    workers: int
    nodes: Mapping[str, int]
    wait_s: float | None
    reason: str
    is_rejected: bool
    changes: tuple[AllocationChange, ...]  # when it starts
    jobs_of_unknown_length: tuple[str, ...]


def forecast_job(policy: Policy, snapshot: Snapshot, job: JobInfo, cost: ChangeCost) -> Forecast:
    """Forecasts a job that is submitted now. Other jobs go on as fast as is known, and no other job is submitted."""
    if job.name in snapshot.jobs_by_name:
        raise SpecError(f"a job {job.name!r} exists already; give the new one another name")
    plan = _decide(policy, snapshot, job)
    allocation = plan.allocations[job.name]
    if allocation.workers or allocation.is_rejected:
        changes = _allocation_changes(_decide(policy, snapshot, None), plan, snapshot)
        wait_s = None if allocation.is_rejected else 0.0
        return Forecast(
            allocation.worker_count, allocation.workers, wait_s, allocation.reason, allocation.is_rejected, changes, ()
        )
    started = _simulate_until_start(policy, snapshot, job, cost)
    jobs_of_unknown_length = tuple(
        sorted(
            existing_job.name
            for existing_job in snapshot.jobs
            if existing_job.work_left is None or existing_job.rates is None
        )
    )
    if started is None:
        return Forecast(0, {}, None, allocation.reason, False, (), jobs_of_unknown_length)
    started_at, snapshot_then, plan_then = started
    allocation_then = plan_then.allocations[job.name]
    changes = _allocation_changes(_decide(policy, snapshot_then, None), plan_then, snapshot_then)
    return Forecast(
        allocation_then.worker_count,
        allocation_then.workers,
        started_at - snapshot.now,
        allocation.reason,
        False,
        changes,
        jobs_of_unknown_length,
    )


def _decide(policy: Policy, snapshot: Snapshot, job: JobInfo | None) -> AllocationPlan:
    visible = replace(snapshot, jobs=(*snapshot.jobs, job)) if job else snapshot
    return priorities.decide_by_priority(policy, visible, None).plan


def _allocation_changes(
    plan_without: AllocationPlan, plan_with: AllocationPlan, snapshot: Snapshot
) -> tuple[AllocationChange, ...]:
    changes = []
    for job in sort_by_submission(snapshot.jobs):
        before, after = plan_without.allocations[job.name].worker_count, plan_with.allocations[job.name].worker_count
        if before != after:
            changes.append(AllocationChange(job.name, before, after, plan_with.allocations[job.name].reason))
    return tuple(changes)


def _simulate_until_start(
    policy: Policy, snapshot: Snapshot, job: JobInfo, cost: ChangeCost
) -> tuple[float, Snapshot, AllocationPlan] | None:
    """Returns when the job first has workers, the other jobs at that moment, and the plan that starts it."""
    speeds = SpeedEstimates(snapshot)
    engine = _StartWatcher(
        policy, [_trace_job(job, speeds, snapshot.now)], SimulationConfig(snapshot.nodes, cost), job.name
    )
    engine.load_running_jobs(
        snapshot.now,
        [(_trace_job(existing_job, speeds, existing_job.submitted_at), existing_job) for existing_job in snapshot.jobs],
    )
    for _ in engine.run(engine.check):
        pass
    return engine.started


class _StartWatcher(SimulationEngine):
    """Ends with the plan that first gives one job workers, or after `HORIZON_S`, and remembers it."""

    def __init__(self, policy: Policy, trace: list[TraceJob], setting: SimulationConfig, name: str) -> None:
        super().__init__(policy, trace, setting)
        self.started: tuple[float, Snapshot, AllocationPlan] | None = None
        self._name = name
        self._horizon_at = trace[0].submitted_at + HORIZON_S
        self._last_snapshot: Snapshot | None = None

    def snapshot(self, now: float) -> Snapshot:
        self._last_snapshot = super().snapshot(now)
        return self._last_snapshot

    def apply(self, plan: AllocationPlan, now: float) -> None:
        super().apply(plan, now)
        if self.started is None and plan.workers_of(self._name) and self._last_snapshot is not None:
            others = tuple(job for job in self._last_snapshot.jobs if job.name != self._name)
            self.started = now, replace(self._last_snapshot, jobs=others), plan

    def check(self, now: float, _active: int) -> None:
        if self.started is not None or now > self._horizon_at:
            self.active_jobs.clear()  # ends the simulation


def _trace_job(job: JobInfo, speeds: SpeedEstimates, submitted_at: float) -> TraceJob:
    return TraceJob(
        job.name,
        submitted_at,
        _RemainingWorkload(job, speeds),
        job.rigid_size,
        job.min_workers,
        job.max_workers,
        job.sizes,
        job.priority,
        job.queue,
        job.devices,
        job.kinds,
        job.weight,
        job.is_guaranteed,
        job.may_share,
        job.device_use,
        job.request,
        job.constraints,
    )


class _RemainingWorkload(ConstantRateWorkload):
    """The remaining work of a job, known or assumed."""

    def __init__(self, job: JobInfo, speeds: SpeedEstimates) -> None:
        super().__init__(max(speeds.work_left(job), 1e-6))
        self._job = job
        self._rates = job.rates or RateTable({"": tuple((n, float(n)) for n in sorted({1, job.max_workers}))})

    @property
    def name(self) -> str:
        return self._job.name

    def place(self, placement: WorkersPerNode, kind: str, batch: BatchConfig | None) -> None:
        count = sum(placement)
        rate = self._rates.work_per_s(np.array([count]), np.array([len(placement)]), kind)[0] if count else 0.0
        self._rate = max(float(np.nan_to_num(rate)), 0.0)

    def report(self) -> JobReport:
        job = self._job
        work_left = self._remaining if job.work_left is not None else None
        return JobReport(job.speeds, job.noise, job.rates, work_left, job.work_done)

    def isolated_duration_s(self, workers: float) -> float:
        rate = float(self._rates.work_per_s(np.array([max(workers, 1.0)]), np.array([1]), "")[0])
        return self._total / max(rate, 1e-9)
