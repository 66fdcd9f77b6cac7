"""Max-min fair shares: jobs of equal priority make room for each other, as the original ElasticDL announced.

A new job gets its minimum from jobs that have more than theirs. Then all jobs get equal numbers of devices as far as
their minimum, maximum and allowed sizes permit (progressive filling: the smallest grows first).

Our choices where the original says nothing:
- No job is stopped for one of equal priority, only shrunk to its minimum. While the minimums do not all fit, running
  jobs go on and new ones wait in order.
- Among equally fair plans the one with the fewest changes wins: on a tie a device stays where it is, and nothing
  changes unless the plan becomes fairer.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from elasticdl.scheduler.interface import Decision
from elasticdl.scheduler.placement.assignment import (
    assign_nodes,
    grow_workers,
    next_size,
    sort_by_submission,
    surviving_workers,
    with_workers,
)
from elasticdl.scheduler.placement.free_resources import FreeResources
from elasticdl.scheduler.plan import Allocation, AllocationPlan
from elasticdl.scheduler.snapshot import JobInfo, NodeInfo, Snapshot, WorkersByNode


@dataclass(frozen=True)
class MaxMin:
    name: str = "max-min"
    is_rigid: bool = False
    interval_s: float = 0.0
    decides_on_events: bool = True
    adapts_batch: bool = False
    needs_oracle: bool = False

    def decide(self, snapshot: Snapshot, memory: object) -> Decision:
        queue = sort_by_submission(snapshot.jobs)
        assigned = _current_workers(queue, snapshot.nodes)
        # Repeats until the plan is no fairer, so that the next decision changes nothing.
        while (proposed := _propose_workers(queue, assigned, snapshot)) and _device_counts(
            queue, proposed
        ) > _device_counts(queue, assigned):
            assigned = proposed
        running = [job for job in queue if job.name in assigned]
        level = sum(job.devices * sum(assigned[job.name].values()) for job in running) / max(len(running), 1)
        return Decision(
            AllocationPlan({job.name: _allocation(job, assigned.get(job.name, {}), level) for job in queue})
        )


def _current_workers(queue: list[JobInfo], nodes: Iterable[NodeInfo]) -> dict[str, WorkersByNode]:
    """Returns the workers that jobs have on nodes that still exist."""
    free, assigned = FreeResources(nodes), {}
    for job in queue:
        if job.workers and (surviving := surviving_workers(free, job)):
            assigned[job.name] = surviving
            free.allocate(job, surviving)
    return assigned


def _propose_workers(
    queue: list[JobInfo], assigned: Mapping[str, WorkersByNode], snapshot: Snapshot
) -> dict[str, WorkersByNode]:
    jobs = [with_workers(job, assigned.get(job.name, {})) for job in queue]
    free = FreeResources(snapshot.nodes)
    proposed = assign_nodes(
        free, sorted(jobs, key=lambda job: not job.workers), max_min_sizes(jobs, snapshot.total_devices)
    )
    _distribute_leftovers(free, jobs, proposed)
    return proposed


def _device_counts(queue: list[JobInfo], assigned: Mapping[str, WorkersByNode]) -> list[int]:
    """Returns the devices of all jobs in ascending order; a greater list is fairer."""
    return sorted(job.devices * sum(assigned.get(job.name, {}).values()) for job in queue)


def max_min_sizes(queue: list[JobInfo], devices: int) -> dict[str, int]:
    """Returns max-min fair worker counts."""
    sizes: dict[str, int] = {}
    free_devices = devices
    for job in sorted(queue, key=lambda job: not job.workers):
        if job.min_size * job.devices <= free_devices:
            sizes[job.name] = job.min_size
            free_devices -= job.min_size * job.devices
    fill_heap = [_fill_order(job, index, job.min_size) for index, job in enumerate(queue) if job.name in sizes]
    heapq.heapify(fill_heap)
    while fill_heap and free_devices:
        _, _, index = heapq.heappop(fill_heap)
        job = queue[index]
        size = next_size(job, sizes[job.name])
        cost = (size - sizes[job.name]) * job.devices
        if size and cost <= free_devices:
            free_devices -= cost
            sizes[job.name] = size
            heapq.heappush(fill_heap, _fill_order(job, index, size))
    return sizes


def _fill_order(job: JobInfo, index: int, size: int) -> tuple[int, bool, int]:
    """The job with the fewest devices is next; on a tie one that has more workers now, so that it keeps them."""
    return size * job.devices, job.worker_count <= size, index


def _distribute_leftovers(free: FreeResources, queue: list[JobInfo], assigned: dict[str, WorkersByNode]) -> None:
    """Gives devices that some jobs could not use where they are to the smallest jobs that can."""
    growing = [job for job in queue if job.name in assigned]
    while growing and free.free_devices:
        job = min(growing, key=lambda job: (job.devices * sum(assigned[job.name].values()), job.submitted_at, job.name))
        if (grown := _grow_one_step(free, job, assigned[job.name])) is None:
            growing.remove(job)
        else:
            assigned[job.name] = grown


def _grow_one_step(free: FreeResources, job: JobInfo, workers: WorkersByNode) -> WorkersByNode | None:
    """Returns the job's workers at its next size, allocated in `free`; None if it cannot grow."""
    size = next_size(job, sum(workers.values()))
    if not size or (size - sum(workers.values())) * job.devices > free.free_devices:
        return None
    return grow_workers(free, with_workers(job, workers), workers, size)


def _allocation(job: JobInfo, workers: Mapping[str, int], mean_devices: float) -> Allocation:
    count = sum(workers.values())
    if not workers:
        return Allocation({}, f"waits for its minimum of {job.min_size} workers: all other jobs are at theirs")
    if count == job.max_workers:
        return Allocation(workers, f"all of its {count} workers; jobs have {mean_devices:.1f} devices on average")
    description = f"{count} of {job.max_workers} workers, {count * job.devices} devices"
    return Allocation(workers, f"{description}: a fair share; jobs have {mean_devices:.1f} devices on average")


POLICY = MaxMin
