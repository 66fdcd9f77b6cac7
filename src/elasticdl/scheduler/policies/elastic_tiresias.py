"""Elastic-Tiresias (EDL, TPDS'21), by the rules of vodascheduler: Tiresias's order, and sizes that give way and grow.

Jobs stand in Tiresias's two queues and get what they asked for, in that order. Compaction: when more than `crowd` jobs
wait, those of the second queue are given their minimum instead, and more are admitted. Expansion: devices that are
left go to those not reached whose minimum fits, in order, and then one worker at a time to whoever gains the most
speedup by it, as long as anybody gains.

Settings are vodascheduler's: 3,600 device-seconds between the queues, promotion after 8 times as long as it ran,
compaction above 10 waiting.

Deviations: speedup is by the job's rates; a job of which nothing is known is taken to scale linearly. Gain is counted
by device, and over the whole step where sizes leave some out. Waiting jobs are counted before compaction.
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
    promote_after: float = 8.0  # times that a job waits as long as it ran; 0: never
    crowded_above: int = 10  # waiting jobs that are still no reason to shrink others
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
        crowd_note = f"; {waiting} jobs wait, so those of queue 2 are at their minimum" if is_crowded else ""
        answers = {job.name: _allocation(job, assigned.get(job.name, {}), updated, crowd_note) for job in queue}
        return Decision(AllocationPlan(answers), updated)


def _admit_in_order(queue: list[JobInfo], devices: int, desired: dict[str, int]) -> dict[str, int]:
    """Sizes of those that are reached."""
    sizes = {}
    for job in queue:
        if desired[job.name] * job.devices <= devices:
            sizes[job.name] = desired[job.name]
            devices -= desired[job.name] * job.devices
    return sizes


def _start_at_min_size(queue: list[JobInfo], sizes: dict[str, int], devices: int) -> None:
    """Whoever was not reached, but whose minimum is left."""
    free = devices - sum(sizes.get(job.name, 0) * job.devices for job in queue)
    for job in queue:
        if job.name not in sizes and job.min_size * job.devices <= free:
            sizes[job.name] = job.min_size
            free -= job.min_size * job.devices


def _expand_by_speedup(queue: list[JobInfo], sizes: dict[str, int], devices: int, per_node: int) -> None:
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
    """Of 0, 1, … `most` workers over one, on as few nodes as can be; linear if nothing is known."""
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
        return Allocation({}, f"{'suspended' if job.workers else 'waits'}: {service}; jobs before it take the devices")
    if count > job.rigid_size:
        return Allocation(
            workers, f"{count} workers, {count - job.rigid_size} more than it asked for: nobody gains more"
        )
    if count < job.rigid_size:
        return Allocation(workers, f"{count} of the {job.rigid_size} workers it asked for: {service}{crowd_note}")
    return Allocation(workers, f"all of the {count} workers it asked for: {service}")


POLICY = ElasticTiresias
