"""Elastic-Tiresias (EDL, TPDS'21), with the rules of vodascheduler: Tiresias's order, and sizes that shrink and grow.

Jobs are in Tiresias's two queues and get the workers they requested, in that order. Compaction: if more than
`crowded_above` jobs wait, jobs of the second queue get their minimum instead, and more jobs are admitted. Expansion:
remaining devices go to the jobs that were not admitted and whose minimum fits, in order, and then one worker at a time
to the job whose speedup grows the most.

Settings are vodascheduler's: 3,600 device-seconds between the queues, promotion after waiting 8 times as long as the
job ran, compaction above 10 waiting jobs.

Deviations:
- Speedup comes from the job's rate model; without a model it is assumed to be linear. The gain is per device, and over
  the whole step if allowed sizes are apart.
- Waiting jobs are counted before compaction.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass

import numpy as np

from elasticdl.scheduler.interface import Decision, Floats
from elasticdl.scheduler.placement.assignment import assign_nodes, next_size
from elasticdl.scheduler.placement.free_resources import FreeResources
from elasticdl.scheduler.plan import Allocation, AllocationPlan
from elasticdl.scheduler.policies.tiresias import Memory, attained_service, update_memory
from elasticdl.scheduler.snapshot import JobInfo, Snapshot, WorkersByNode


@dataclass(frozen=True)
class ElasticTiresias:
    name: str = "elastic-tiresias"
    threshold_s: float = 3600.0  # device-seconds
    promote_after: float = 8.0  # promote a job that waited this many times as long as it ran; 0: never
    crowded_above: int = 10  # waiting jobs above which others shrink
    is_rigid: bool = False
    interval_s: float = 60.0
    decides_on_events: bool = True
    adapts_batch: bool = False
    needs_oracle: bool = False

    def decide(self, snapshot: Snapshot, memory: Memory | None) -> Decision:
        updated = update_memory(snapshot, memory, self.threshold_s, self.promote_after)
        queue = [snapshot.jobs_by_name[name] for queue in updated.queues for name in queue]
        sizes = _admit_in_order(
            queue,
            snapshot.total_devices,
            {job.name: job.max_size_up_to(job.rigid_size) or job.min_size for job in queue},
        )
        waiting = len(queue) - len(sizes)
        is_crowded = waiting > self.crowded_above
        if is_crowded:
            second = set(updated.queues[1])
            desired = {
                job.name: job.min_size if job.name in second else job.max_size_up_to(job.rigid_size) or job.min_size
                for job in queue
            }
            sizes = _admit_in_order(queue, snapshot.total_devices, desired)
        _start_at_min_size(queue, sizes, snapshot.total_devices)
        _expand_by_speedup(queue, sizes, snapshot.total_devices, snapshot.max_devices_per_node)
        assigned = assign_nodes(FreeResources(snapshot.nodes), queue, sizes)
        crowd_note = f"; {waiting} jobs wait, so jobs of queue 2 are at their minimum" if is_crowded else ""
        answers = {job.name: _allocation(job, assigned.get(job.name, {}), updated, crowd_note) for job in queue}
        return Decision(AllocationPlan(answers), updated)


def _admit_in_order(queue: list[JobInfo], devices: int, desired: dict[str, int]) -> dict[str, int]:
    """Returns the sizes of the jobs that fit, in order of the queue."""
    sizes = {}
    for job in queue:
        if desired[job.name] * job.devices <= devices:
            sizes[job.name] = desired[job.name]
            devices -= desired[job.name] * job.devices
    return sizes


def _start_at_min_size(queue: list[JobInfo], sizes: dict[str, int], devices: int) -> None:
    """Adds jobs that were not admitted and whose minimum fits."""
    free = devices - sum(sizes.get(job.name, 0) * job.devices for job in queue)
    for job in queue:
        if job.name not in sizes and job.min_size * job.devices <= free:
            sizes[job.name] = job.min_size
            free -= job.min_size * job.devices


def _expand_by_speedup(queue: list[JobInfo], sizes: dict[str, int], devices: int, per_node: int) -> None:
    """Gives the remaining devices, step by step, to the jobs whose speedup per device grows the most."""
    free = devices - sum(sizes[job.name] * job.devices for job in queue if job.name in sizes)
    offers: list[tuple[float, int, int]] = []
    speedups: dict[int, Floats] = {}

    def offer(index: int) -> None:
        job = queue[index]
        if (size := next_size(job, sizes[job.name])) and size < len(speedups[index]):
            speedup_gain = speedups[index][size] - speedups[index][sizes[job.name]]
            gain = float(speedup_gain) / ((size - sizes[job.name]) * job.devices)
            if gain > 0:
                heapq.heappush(offers, (-gain, index, size))

    for index, job in enumerate(queue):
        if free and job.name in sizes:
            max_workers = min(job.max_workers, sizes[job.name] + free // job.devices)
            speedups[index] = speedups_by_size(job, max_workers, per_node)
            offer(index)
    while offers and free:
        _, index, size = heapq.heappop(offers)
        cost = (size - sizes[queue[index].name]) * queue[index].devices
        if cost <= free:
            free -= cost
            sizes[queue[index].name] = size
            offer(index)


def speedups_by_size(job: JobInfo, max_workers: int, devices_per_node: int) -> Floats:
    """Speedups with 0, 1, … `max_workers` workers on as few nodes as possible; linear without a rate model."""
    workers = np.arange(max_workers + 1)
    linear: Floats = workers.astype(float)
    if job.rates is None or max_workers < 1:
        return linear
    rates = job.rates.work_per_s(workers, np.ceil(workers * job.devices / max(devices_per_node, 1)))
    return rates / rates[1] if rates[1] > 0 and np.isfinite(rates).all() else linear


def _allocation(job: JobInfo, workers: WorkersByNode, memory: Memory, crowd_note: str) -> Allocation:
    queue = 1 + (job.name in memory.queues[1])
    service = f"{attained_service(job, memory) / 3600:.2f} device-hours so far, queue {queue} of 2"
    count = sum(workers.values())
    if not workers:
        return Allocation(
            {}, f"{'suspended' if job.workers else 'waits'}: {service}; jobs ahead of it have the devices"
        )
    if count > job.rigid_size:
        return Allocation(
            workers, f"{count} workers, {count - job.rigid_size} more than requested: no other job gains more"
        )
    if count < job.rigid_size:
        return Allocation(workers, f"{count} of the {job.rigid_size} workers it requested: {service}{crowd_note}")
    return Allocation(workers, f"all of the {count} workers it requested: {service}")


POLICY = ElasticTiresias
