"""A policy for jobs of all priorities: each priority gets what greater ones left, so that none is ever inverted."""

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
    """`memory`, and the decision's, is the policy's by priority."""
    empty = FreeResources(snapshot.nodes)
    allocations: dict[str, Allocation] = {}
    able: dict[int, list[JobInfo]] = {}
    asked: dict[Hashable, str] = {}  # jobs of one shape have one answer
    for job in snapshot.jobs:
        if why := _explain_infeasible_cached(empty, job, policy.is_rigid, snapshot.is_shared, asked):
            allocations[job.name] = Allocation({}, why, is_rejected=not snapshot.is_shared)
        else:
            able.setdefault(job.priority, []).append(_drop_invalid_measurements(job))
    # What a priority without jobs remembered is kept until it has some again.
    nodes, kept = snapshot.nodes, dict(memory or {})
    for priority in sorted(able, reverse=True):
        seen = Snapshot(snapshot.now, nodes, tuple(able[priority]))
        decision = policy.decide(seen, (memory or {}).get(priority))
        allocations |= decision.plan.allocations
        kept[priority] = decision.memory
        if decision.blocks_lower_priorities:
            nodes = tuple(replace(node, devices=0) for node in nodes)
        elif len(able) > 1:
            room = FreeResources(nodes)
            for name, given in decision.plan.allocations.items():
                room.allocate(seen.jobs_by_name[name], given.workers, given.share)
            nodes = room.remaining_nodes()
    return Decision(AllocationPlan(allocations), kept)


def _explain_infeasible_cached(
    empty: FreeResources, job: JobInfo, is_rigid: bool, is_shared: bool, asked: dict[Hashable, str]
) -> str:
    size = job.rigid_size if is_rigid else job.min_size
    shape = size, job.devices, job.kinds, job.constraints, tuple(job.request.items())
    if not size or shape not in asked:
        asked[shape] = explain_infeasible(empty, job.as_rigid() if is_rigid else job, is_shared)
    return asked[shape]


def explain_infeasible(empty: FreeResources, job: JobInfo, is_shared: bool = False) -> str:
    """Why this job could not even run on a cluster that is all its own, or all that others leave; "": it could."""
    least = job.min_size
    if not least:
        limits = f"its minimum {job.min_workers} and maximum {job.max_workers}"
        return f"none of its sizes {list(job.sizes)} is between {limits}"
    if not job.constraints and empty.total_workers_that_fit(job) >= least:
        return ""
    if place_workers(empty, job, least) is not None:
        return ""
    each = f"{job.devices} device{'s' * (job.devices > 1)}"
    needs = ", ".join([each, *(f"{name} {_format_amount(amount)}" for name, amount in job.request.items())])
    where = f" of kind {' or '.join(job.kinds)}" if job.kinds else ""
    most = empty.total_workers_that_fit(job)
    constraints = " placed as its constraints require" if job.constraints and most >= least else ""
    workers = f"needs {least} workers of {needs}{where}{constraints}"
    if is_shared:
        return f"waits for room that others hold: {workers}, they leave room for {most}"
    return f"can never run here: {workers}, the empty cluster has room for {most}"


def _format_amount(amount: float) -> str:
    """Bytes as people write them: 700Mi."""
    for unit, size in (("Gi", 2.0**30), ("Mi", 2.0**20)):
        if amount >= size:
            return f"{amount / size:.4g}{unit}"
    return f"{amount:g}"


def _drop_invalid_measurements(job: JobInfo) -> JobInfo:
    """Without measurements that are no numbers."""
    speeds = tuple(one for one in job.speeds if _is_valid(one))
    noise = job.noise
    if noise is not None and not (math.isfinite(noise.gradient_norm_sq) and math.isfinite(noise.gradient_variance)):
        noise = None
    left = job.work_left if job.work_left is None or math.isfinite(job.work_left) else None
    if speeds == job.speeds and noise is job.noise and left == job.work_left:
        return job
    return replace(job, speeds=speeds, noise=noise, work_left=left)


def _is_valid(sample: SpeedSample) -> bool:
    times = sample.step_s, sample.compute_s
    return all(math.isfinite(one) and one > 0 for one in times) and min(sample.nodes, sample.workers) > 0
