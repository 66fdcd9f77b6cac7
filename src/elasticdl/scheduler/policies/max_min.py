"""Jobs of equal priority give way to each other: ElasticDL's announced future work.

The original says that elastic jobs of one priority should make room for whoever comes. Here they do, both ways: a
newcomer gets its minimum from those that have more than theirs, and then all are levelled to equal numbers of
devices, as far as their minimum, maximum and allowed sizes let them (max-min, by filling up the least first).

Our reading where the original says nothing: nobody is stopped for an equal, only shrunk to its minimum; so while
minimums do not all fit, who runs goes on and newcomers wait in order. Of several equal ways to level, the one that
changes the fewest jobs is taken: on a tie a device goes to who has it, and nothing changes if that levels nothing.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

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

    def decide(self, snapshot: Snapshot, memory: Any) -> Decision:
        queue = sort_by_submission(snapshot.jobs)
        assigned = _current_workers(queue, snapshot.nodes)
        # Again from what came out, until it is no better: so the next decision changes nothing.
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
    """What jobs have, as far as it is still there."""
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
    """Devices of all jobs, the least first: greater is better."""
    return sorted(job.devices * sum(assigned.get(job.name, {}).values()) for job in queue)


def max_min_sizes(queue: list[JobInfo], devices: int) -> dict[str, int]:
    """Workers of each job, so that nobody could have more without somebody having less who has no more than they."""
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
    """Who has the least is next; on a tie who has more already, so that it can stay so."""
    return size * job.devices, job.worker_count <= size, index


def _distribute_leftovers(free: FreeResources, queue: list[JobInfo], assigned: dict[str, WorkersByNode]) -> None:
    """Devices that somebody could not use where they are go to those with the least who can."""
    growing = [job for job in queue if job.name in assigned]
    while growing and free.free_devices:
        job = min(growing, key=lambda job: (job.devices * sum(assigned[job.name].values()), job.submitted_at, job.name))
        if (grown := _grow_one_step(free, job, assigned[job.name])) is None:
            growing.remove(job)
        else:
            assigned[job.name] = grown


def _grow_one_step(free: FreeResources, job: JobInfo, workers: WorkersByNode) -> WorkersByNode | None:
    """Takes it from `room` too."""
    size = next_size(job, sum(workers.values()))
    if not size or (size - sum(workers.values())) * job.devices > free.free_devices:
        return None
    return grow_workers(free, with_workers(job, workers), workers, size)


def _allocation(job: JobInfo, workers: Mapping[str, int], mean_devices: float) -> Allocation:
    count = sum(workers.values())
    if not workers:
        return Allocation({}, f"waits for its minimum of {job.min_size} workers: all others have no more than theirs")
    if count == job.max_workers:
        return Allocation(workers, f"all of its {count} workers; jobs have {mean_devices:.1f} devices on average")
    description = f"{count} of {job.max_workers} workers, {count * job.devices} devices"
    return Allocation(
        workers, f"{description}: levelled with the others, who have {mean_devices:.1f} devices on average"
    )


POLICY = MaxMin
