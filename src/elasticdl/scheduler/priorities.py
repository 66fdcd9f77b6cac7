"""Applies a policy to jobs of all priorities: each gets what higher priorities left, so that none is ever inverted."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
from dataclasses import replace
from typing import Any

from elasticdl.scheduler.interface import Decision, Policy
from elasticdl.scheduler.placement.free_resources import FreeResources
from elasticdl.scheduler.placement.nodes import place_workers
from elasticdl.scheduler.plan import Allocation, AllocationPlan
from elasticdl.scheduler.snapshot import JobInfo, Snapshot, SpeedSample


def decide_by_priority(policy: Policy, snapshot: Snapshot, memory: Mapping[int, Any] | None) -> Decision:
    """`memory`, here and in the decision, is the policy's memory by priority."""
    empty = FreeResources(snapshot.nodes)
    allocations: dict[str, Allocation] = {}
    feasible: dict[int, list[JobInfo]] = {}
    reasons: dict[Hashable, str] = {}  # by shape: equal jobs have the same answer
    for job in snapshot.jobs:
        if reason := _explain_infeasible_cached(empty, job, policy.is_rigid, snapshot.is_shared, reasons):
            allocations[job.name] = Allocation({}, reason, is_rejected=not snapshot.is_shared)
        else:
            feasible.setdefault(job.priority, []).append(_drop_invalid_measurements(job))
    # The memory of a priority without jobs is kept until it has jobs again.
    nodes, memories = snapshot.nodes, dict(memory or {})
    for priority in sorted(feasible, reverse=True):
        visible = Snapshot(snapshot.now, nodes, tuple(feasible[priority]))
        decision = policy.decide(visible, (memory or {}).get(priority))
        allocations |= decision.plan.allocations
        memories[priority] = decision.memory
        if decision.blocks_lower_priorities:
            nodes = tuple(replace(node, devices=0) for node in nodes)
        elif len(feasible) > 1:
            free = FreeResources(nodes)
            for name, allocation in decision.plan.allocations.items():
                free.allocate(visible.jobs_by_name[name], allocation.workers, allocation.share)
            nodes = free.remaining_nodes()
    return Decision(AllocationPlan(allocations), memories)


def _explain_infeasible_cached(
    empty: FreeResources, job: JobInfo, is_rigid: bool, is_shared: bool, reasons: dict[Hashable, str]
) -> str:
    size = job.rigid_size if is_rigid else job.min_size
    shape = size, job.devices, job.kinds, job.constraints, tuple(job.request.items())
    if not size or shape not in reasons:
        reasons[shape] = explain_infeasible(empty, job.as_rigid() if is_rigid else job, is_shared)
    return reasons[shape]


def explain_infeasible(empty: FreeResources, job: JobInfo, is_shared: bool = False) -> str:
    """Returns why a job cannot run even alone on the cluster, or on all that other users leave; "": it can."""
    min_size = job.min_size
    if not min_size:
        limits = f"its minimum {job.min_workers} and maximum {job.max_workers}"
        return f"none of its sizes {list(job.sizes)} is between {limits}"
    if not job.constraints and empty.total_workers_that_fit(job) >= min_size:
        return ""
    if place_workers(empty, job, min_size) is not None:
        return ""
    worker_devices = f"{job.devices} device{'s' * (job.devices > 1)}"
    needs = ", ".join([worker_devices, *(f"{name} {_format_amount(amount)}" for name, amount in job.request.items())])
    kinds = f" of kind {' or '.join(job.kinds)}" if job.kinds else ""
    workers_that_fit = empty.total_workers_that_fit(job)
    constraints = " placed as its constraints require" if job.constraints and workers_that_fit >= min_size else ""
    workers = f"needs {min_size} workers of {needs}{kinds}{constraints}"
    if is_shared:
        return f"waits for devices that other users hold: {workers}, they leave room for {workers_that_fit}"
    return f"can never run here: {workers}, the empty cluster has room for {workers_that_fit}"


def _format_amount(amount: float) -> str:
    """Formats bytes with a unit, such as 700Mi."""
    for unit, size in (("Gi", 2.0**30), ("Mi", 2.0**20)):
        if amount >= size:
            return f"{amount / size:.4g}{unit}"
    return f"{amount:g}"


def _drop_invalid_measurements(job: JobInfo) -> JobInfo:
    """Removes measurements that are not finite."""
    speeds = tuple(sample for sample in job.speeds if _is_valid(sample))
    noise = job.noise
    if noise is not None and not (math.isfinite(noise.gradient_norm_sq) and math.isfinite(noise.gradient_variance)):
        noise = None
    work_left = job.work_left if job.work_left is None or math.isfinite(job.work_left) else None
    if speeds == job.speeds and noise is job.noise and work_left == job.work_left:
        return job
    return replace(job, speeds=speeds, noise=noise, work_left=work_left)


def _is_valid(sample: SpeedSample) -> bool:
    times = sample.step_s, sample.compute_s
    return all(math.isfinite(seconds) and seconds > 0 for seconds in times) and min(sample.nodes, sample.workers) > 0
