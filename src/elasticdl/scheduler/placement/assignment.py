"""Assigns nodes to many jobs whose worker counts are known: unchanged jobs stay, then jobs shrink, grow and start."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from elasticdl.scheduler.placement.free_resources import FreeResources
from elasticdl.scheduler.placement.nodes import meets_constraints, resize_in_place, shrink_workers
from elasticdl.scheduler.snapshot import JobInfo, NodeInfo, WorkersByNode


def sort_by_submission(jobs: Iterable[JobInfo]) -> list[JobInfo]:
    """Sorts jobs by time of submission, then by name."""
    return sorted(jobs, key=lambda job: (job.submitted_at, job.name))


def assign_nodes(
    free: FreeResources, jobs: Iterable[JobInfo], sizes: Mapping[str, int], *, is_rigid: bool = False
) -> dict[str, WorkersByNode]:
    """Returns nodes for this many workers of each job, allocated in `free`; jobs that get none are left out.

    A job that does not fit gets the next smaller size that does, or none if sizes are rigid. Finally jobs without
    workers are tried with their minimum, in the given order, so that a job waits only if it must.
    """
    jobs = list(jobs)
    assigned: dict[str, WorkersByNode] = {}

    def assign(job: JobInfo, workers: WorkersByNode | None) -> None:
        if workers:
            free.allocate(job, workers)
            assigned[job.name] = workers

    for job in jobs:
        if job.workers and job.worker_count == sizes.get(job.name, 0):
            assign(
                job,
                job.workers if free.can_hold(job, job.workers) and meets_constraints(free, job, job.workers) else None,
            )
    changed = [job for job in jobs if sizes.get(job.name, 0) and job.name not in assigned]
    for job in sorted(changed, key=lambda job: _change_order(job, sizes[job.name])):
        size = sizes[job.name]
        assign(job, resize_in_place(free, job, size) if is_rigid else place_at_most(free, job, size))
    for job in jobs:
        if job.name not in assigned and free.free_devices:
            assign(job, resize_in_place(free, job, job.rigid_size if is_rigid else job.min_size))
    return assigned


def place_at_most(free: FreeResources, job: JobInfo, max_workers: int) -> WorkersByNode:
    """Returns up to `max_workers` workers, in place if possible; {}: not even the minimum fits. Allocates nothing."""
    size = job.max_size_up_to(min(max_workers, free.total_workers_that_fit(job)))
    while size:
        if (workers := resize_in_place(free, job, size)) is not None:
            return workers
        size = job.max_size_up_to(size - 1)
    return {}


def surviving_workers(free: FreeResources, job: JobInfo) -> WorkersByNode:
    """Returns as many of a running job's workers as can stay where they are; {}: the job would have to restart."""
    if (
        free.can_hold(job, job.workers)
        and job.allows_size(job.worker_count)
        and meets_constraints(free, job, job.workers)
    ):
        return job.workers
    remaining = {
        name: min(n, free.workers_that_fit(job, name)) for name, n in job.workers.items() if name in free.nodes
    }
    surviving = shrink_workers(remaining, job.max_size_up_to(sum(remaining.values())))
    return surviving if meets_constraints(free, job, surviving) else {}


def can_all_stay(nodes: Iterable[NodeInfo], jobs: Iterable[JobInfo]) -> bool:
    """Returns whether all jobs may keep exactly the workers they have, on devices of their own."""
    free = FreeResources(nodes)
    for job in jobs:
        if not job.workers:
            continue
        is_allowed = job.allows_size(job.worker_count) and job.share == 1.0
        if not (is_allowed and free.can_hold(job, job.workers) and meets_constraints(free, job, job.workers)):
            return False
        free.allocate(job, job.workers)
    return True


def grow_workers(free: FreeResources, job: JobInfo, workers: WorkersByNode, size: int) -> WorkersByNode | None:
    """Allocates `size` workers instead of these, beside them if possible. None: they do not fit, nothing changed."""
    free.release(job, workers)
    grown = resize_in_place(free, with_workers(job, workers) if workers else job, size)
    free.allocate(job, workers if grown is None else grown)
    return grown


def with_workers(job: JobInfo, workers: WorkersByNode) -> JobInfo:
    """Returns the job as if it had these workers."""
    return job if workers == job.workers else replace(job, workers=workers)


def next_size(job: JobInfo, count: int) -> int:
    """Returns the smallest allowed number of workers above `count`; 0: there is none."""
    if job.sizes:
        return min((size for size in job.sizes if size > count and job.allows_size(size)), default=0)
    return 0 if count >= job.max_workers else max(count + 1, job.min_workers)


def can_use_any_device(job: JobInfo) -> bool:
    """Returns whether any free device suits any of the job's workers, so that counting devices is enough."""
    return job.devices == 1 and not (job.request or job.constraints or job.kinds)


def _change_order(job: JobInfo, size: int) -> tuple[int, int]:
    if size < job.worker_count:
        return 0, 0
    return (1, 0) if job.workers else (2, -size * job.devices)


DesiredSize = tuple[JobInfo, int]


def assign_or_repack(
    nodes: Iterable[NodeInfo], desired: Sequence[DesiredSize], fallback: Mapping[str, WorkersByNode] = {}
) -> dict[str, WorkersByNode]:
    """Returns the workers of each job. They stay where they are unless packing all again serves more jobs or devices.

    `fallback` is a known placement of all desired sizes. Without one, a job that does not fit gets the largest
    allowed size that does, or none. A job of size 0 starts with its minimum if that fits in the end, in the order of
    `desired`, so that none waits beside free devices.
    """
    nodes = tuple(nodes)
    assigned = _assign_in_order(nodes, desired)
    if any(sum(assigned[job.name].values()) < count for job, count in desired):
        repacked = dict(fallback) or _assign_in_order(
            nodes, [(replace(job, workers={}), count) for job, count in desired]
        )
        assigned = repacked if _assignment_value(repacked, desired) > _assignment_value(assigned, desired) else assigned
    free = FreeResources(nodes)
    for job, _ in desired:
        free.allocate(job, assigned.setdefault(job.name, {}))
    for job, count in desired:
        if not count and free.free_devices >= job.devices:
            assigned[job.name] = place_at_most(free, job, next_size(job, 0))
            free.allocate(job, assigned[job.name])
    return assigned


def sort_by_change(desired: Iterable[DesiredSize]) -> list[DesiredSize]:
    """Sorts unchanged jobs first, then shrinking, growing, starting ones; within these, restricted and large ones."""

    def key(desired_size: DesiredSize) -> tuple[int, int, int, float, str]:
        job, count = desired_size
        change = 3 if not job.workers else 0 if job.worker_count == count else 1 if count < job.worker_count else 2
        return change, len(job.kinds) or 1 << 30, -count * job.devices, job.submitted_at, job.name

    return sorted(desired, key=key)


def grow_round_robin(free: FreeResources, queue: Sequence[JobInfo], assigned: dict[str, WorkersByNode]) -> None:
    """Gives the free devices to the jobs in turn, one step to the next allowed size each, until none can grow."""
    growing = list(queue)
    while growing and free.free_devices:
        growing = [job for job in growing if _grow_one_step(free, job, assigned)]


def _grow_one_step(free: FreeResources, job: JobInfo, assigned: dict[str, WorkersByNode]) -> bool:
    workers = assigned.get(job.name, {})
    size = next_size(job, sum(workers.values()))
    grown = grow_workers(free, job, workers, size) if size else None
    if grown is None:
        return False
    assigned[job.name] = grown
    return True


def _assign_in_order(nodes: Iterable[NodeInfo], desired: Sequence[DesiredSize]) -> dict[str, WorkersByNode]:
    free = FreeResources(nodes)
    assigned: dict[str, WorkersByNode] = {}
    for job, count in sort_by_change(desired):
        assigned[job.name] = place_at_most(free, job, count) if count else {}
        free.allocate(job, assigned[job.name])
    return assigned


def _assignment_value(assigned: Mapping[str, WorkersByNode], desired: Sequence[DesiredSize]) -> tuple[int, int]:
    served = sum(1 for workers in assigned.values() if workers)
    return served, sum(job.devices * sum(assigned.get(job.name, {}).values()) for job, _ in desired)
