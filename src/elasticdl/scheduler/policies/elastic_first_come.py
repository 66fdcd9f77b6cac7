"""The original ElasticDL's elastic scheduling in order of submission: a job starts at once with whatever is free.

The original leaves this to Kubernetes: pods are requested in order of submission, free devices are used at once, and
the remaining pods start when other jobs end. Jobs of equal priority never take devices from each other. First every job
gets its minimum, in order; then the remaining devices go round, one worker each (vodascheduler's "Elastic-FIFO").

Deviations:
- Devices go round instead of filling the first job to its maximum. The queue of Kubernetes has the same effect, because
  masters ask again and again.
- Sizes are decided first and placed afterwards, so that new jobs are on few nodes. Running workers are never moved.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass

from elasticdl.scheduler.interface import Decision
from elasticdl.scheduler.placement.assignment import (
    can_use_any_device,
    grow_workers,
    next_size,
    sort_by_submission,
    surviving_workers,
    with_workers,
)
from elasticdl.scheduler.placement.free_resources import FreeResources
from elasticdl.scheduler.plan import Allocation, AllocationPlan
from elasticdl.scheduler.snapshot import JobInfo, Snapshot, WorkersByNode


@dataclass(frozen=True)
class ElasticFirstCome:
    name: str = "elastic-first-come"
    is_rigid: bool = False
    interval_s: float = 0.0
    decides_on_events: bool = True
    adapts_batch: bool = False
    needs_oracle: bool = False

    def decide(self, snapshot: Snapshot, memory: object) -> Decision:
        free = FreeResources(snapshot.nodes)
        queue = sort_by_submission(snapshot.jobs)
        assigned: dict[str, WorkersByNode] = {}
        for job in queue:
            if job.workers and (surviving := surviving_workers(free, job)):
                assigned[job.name] = surviving
                free.allocate(job, surviving)
        free_devices = free.free_devices
        if free_devices:
            growing = [
                job for job in queue if job.name not in assigned or sum(assigned[job.name].values()) < job.max_workers
            ]
            if all(can_use_any_device(job) for job in growing):
                _place_sizes(free, growing, assigned, _choose_sizes(growing, assigned, free_devices))
            else:
                _grow_by_trial(free, growing, assigned)
        free_devices = free.free_devices
        return Decision(
            AllocationPlan({job.name: _allocation(job, assigned.get(job.name, {}), free_devices) for job in queue})
        )


def _choose_sizes(queue: list[JobInfo], assigned: Mapping[str, WorkersByNode], free_devices: int) -> dict[str, int]:
    """Returns the worker counts of jobs that can use any device."""
    sizes = {job.name: sum(assigned.get(job.name, {}).values()) for job in queue}
    for job in queue:
        if not sizes[job.name] and job.min_size <= free_devices:
            sizes[job.name] = job.min_size
            free_devices -= job.min_size
    waiting = deque(job for job in queue if sizes[job.name])
    while waiting and free_devices:
        job = waiting.popleft()
        size = next_size(job, sizes[job.name])
        if size and size - sizes[job.name] <= free_devices:
            free_devices -= size - sizes[job.name]
            sizes[job.name] = size
            waiting.append(job)
    return sizes


def _place_sizes(
    free: FreeResources, queue: list[JobInfo], assigned: dict[str, WorkersByNode], sizes: Mapping[str, int]
) -> bool:
    """Places these sizes, running jobs first, then the largest; returns whether all fit."""
    for job in sorted(queue, key=lambda job: (not job.workers, -sizes[job.name] * job.devices)):
        before = assigned.get(job.name, {})
        if sizes[job.name] == sum(before.values()):
            continue
        workers = grow_workers(free, with_workers(job, before), before, sizes[job.name])
        if workers is None:
            return False
        assigned[job.name] = workers
    return True


def _grow_by_trial(free: FreeResources, queue: list[JobInfo], assigned: dict[str, WorkersByNode]) -> None:
    """Grows jobs that need certain devices: worker by worker, then all at once on fewer nodes, until none grows."""
    initial = dict(assigned)
    while True:
        before = {job.name: sum(assigned.get(job.name, {}).values()) for job in queue}
        for job in queue:
            if job.name not in assigned:
                _place_sizes(free, [job], assigned, {job.name: job.min_size})
        waiting = deque(job for job in queue if job.name in assigned)
        while waiting and free.free_devices:
            job = waiting.popleft()
            size = next_size(job, sum(assigned[job.name].values()))
            if size and _place_sizes(free, [job], assigned, {job.name: size}):
                waiting.append(job)
        sizes = {job.name: sum(assigned.get(job.name, {}).values()) for job in queue}
        if sizes == before:
            return
        trial = {job.name: assigned[job.name] for job in queue if job.name in assigned}
        _restore_workers(free, queue, assigned, initial)
        if not _place_sizes(free, [job for job in queue if sizes[job.name]], assigned, sizes):
            _restore_workers(free, queue, assigned, trial)
            return


def _restore_workers(
    free: FreeResources, queue: list[JobInfo], assigned: dict[str, WorkersByNode], saved: Mapping[str, WorkersByNode]
) -> None:
    for job in queue:
        free.release(job, assigned.pop(job.name, {}))
    for job in queue:
        if job.name in saved:
            assigned[job.name] = saved[job.name]
            free.allocate(job, saved[job.name])


def _allocation(job: JobInfo, workers: WorkersByNode, free_devices: int) -> Allocation:
    count = sum(workers.values())
    if not workers:
        minimum = f"waits for its minimum of {job.min_size} workers"
        return Allocation({}, f"{minimum}: {free_devices} devices are free, earlier jobs have the others")
    if count < job.max_workers:
        return Allocation(workers, f"{count} of {job.max_workers} workers: all free devices, in order of submission")
    return Allocation(workers, f"all of its {count} workers")


POLICY = ElasticFirstCome
