"""The rules that every plan must keep, whatever the policy."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from elasticdl.scheduler.interface import Policy
from elasticdl.scheduler.placement.free_resources import FreeResources
from elasticdl.scheduler.placement.nodes import meets_constraints, place_workers
from elasticdl.scheduler.plan import Allocation, AllocationPlan
from elasticdl.scheduler.snapshot import JobInfo, Snapshot


def find_violations(policy: Policy, snapshot: Snapshot, plan: AllocationPlan) -> list[str]:
    """Returns a sentence for every broken rule; none for a plan that may be carried out."""
    violations = [*_name_violations(snapshot, plan)]
    if violations:
        return violations
    return [
        *_size_violations(policy, snapshot, plan),
        *_capacity_violations(snapshot, plan),
        *_priority_violations(policy, snapshot, plan),
    ]


def _name_violations(snapshot: Snapshot, plan: AllocationPlan) -> Iterator[str]:
    if unknown := set(plan.allocations) - set(snapshot.jobs_by_name):
        yield f"allocates to unknown jobs: {sorted(unknown)}"
    if forgotten := set(snapshot.jobs_by_name) - set(plan.allocations):
        yield f"has no allocation for {sorted(forgotten)}"
    for name, allocation in plan.allocations.items():
        if lost := [node for node in allocation.workers if node not in snapshot.nodes_by_name]:
            yield f"{name}: puts workers on unknown nodes: {sorted(lost)}"


def _size_violations(policy: Policy, snapshot: Snapshot, plan: AllocationPlan) -> Iterator[str]:
    for name, allocation in plan.allocations.items():
        job = snapshot.jobs_by_name[name]
        if any(count < 1 for count in allocation.workers.values()):
            yield f"{name}: has a node with less than one worker: {dict(allocation.workers)}"
        if allocation.workers and not (
            allocation.worker_count == job.rigid_size if policy.is_rigid else job.allows_size(allocation.worker_count)
        ):
            yield f"{name}: {allocation.worker_count} workers, allowed are {_describe_allowed_sizes(policy, job)}"
        if allocation.workers and allocation.is_rejected:
            yield f"{name}: is rejected and has workers"
        if not allocation.reason:
            yield f"{name}: has no reason"
        if not 0 < allocation.share <= 1 or (allocation.share < 1 and not job.may_share):
            yield f"{name}: a share of {allocation.share} of its devices"
        if wrong_nodes := [node for node in allocation.workers if not job.can_run_on(snapshot.nodes_by_name[node])]:
            yield f"{name}: on {wrong_nodes}, whose devices are none of {job.kinds}"
        if (
            job.constraints
            and allocation.workers
            and not meets_constraints(FreeResources(snapshot.nodes), job, allocation.workers)
        ):
            yield f"{name}: {dict(allocation.workers)} does not meet its constraints"


def _capacity_violations(snapshot: Snapshot, plan: AllocationPlan) -> Iterator[str]:
    free = _resources_left(snapshot, plan.allocations)
    for node, devices in free.devices.items():
        if devices < -1e-6:
            yield f"{node}: {-devices:g} devices more than it has"
    for node, left in free.resources_by_node.items():
        yield from (f"{node}: more {resource} than it has" for resource, amount in left.items() if amount < -1e-6)


def _priority_violations(policy: Policy, snapshot: Snapshot, plan: AllocationPlan) -> Iterator[str]:
    """A waiting job must not fit on the free devices together with those of jobs of lower priority."""
    priorities = {job.priority for job in snapshot.jobs}
    for priority in sorted(priorities)[1:]:
        waiting = [
            job
            for job in snapshot.jobs
            if job.priority == priority and not plan.workers_of(job.name) and not plan.allocations[job.name].is_rejected
        ]
        above = {
            name: allocation
            for name, allocation in plan.allocations.items()
            if snapshot.jobs_by_name[name].priority >= priority
        }
        below = {
            name: allocation
            for name, allocation in plan.allocations.items()
            if snapshot.jobs_by_name[name].priority < priority and allocation.workers
        }
        if not below or not waiting:
            continue
        free_above, free_now = _resources_left(snapshot, above), _resources_left(snapshot, plan.allocations)
        for job in waiting:
            size = _min_size(policy, job)
            if place_workers(free_above, job, size) is not None and place_workers(free_now, job, size) is None:
                yield f"{job.name}: waits though jobs of lower priority have what it needs: {sorted(below)}"


def _min_size(policy: Policy, job: JobInfo) -> int:
    return job.rigid_size if policy.is_rigid else job.min_size


def _describe_allowed_sizes(policy: Policy, job: JobInfo) -> str:
    if policy.is_rigid:
        return str(job.rigid_size)
    return ", ".join(map(str, job.sizes)) if job.sizes else f"{job.min_workers} to {job.max_workers}"


def _resources_left(snapshot: Snapshot, allocations: Mapping[str, Allocation]) -> FreeResources:
    free = FreeResources(snapshot.nodes)
    for name, allocation in allocations.items():
        free.allocate(snapshot.jobs_by_name[name], allocation.workers, allocation.share)
    return free
