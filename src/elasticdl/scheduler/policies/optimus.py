"""Optimus (EuroSys'18): each worker goes to the job whose remaining time it shortens the most.

Every job gets one worker first, so that none starves. Then, while devices remain, the job with the greatest gain
Q/f(w) − Q/f(w+1) gets one more, where Q is its remaining work and f its speed. The paper decides every 10 minutes,
Pollux's evaluation every 60 s; its "Optimus+Oracle" (true speeds, true remaining steps) is this policy with the
simulator's oracle.

Deviations:
- Speed and remaining work come with the snapshot (from fitted models) instead of from sampling runs.
- The gain is per device, the one resource that is scheduled. Parameter servers are not allocated separately.
- As in Pollux's port the smallest jobs are placed first, on the emptiest nodes. A job keeps its nodes if its number of
  workers stays; the cost of changes is not weighed. Where jobs cannot use any device, they are placed as by the other
  policies.
- A job of unknown length is assumed to have as much work left as it did, at least ten minutes' worth.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from elasticdl.scheduler.interface import Decision, Floats
from elasticdl.scheduler.models.estimates import SpeedEstimates
from elasticdl.scheduler.placement.assignment import (
    assign_nodes,
    can_all_stay,
    can_use_any_device,
    next_size,
    sort_by_submission,
)
from elasticdl.scheduler.placement.free_resources import FreeResources
from elasticdl.scheduler.placement.nodes import place_on_emptiest
from elasticdl.scheduler.plan import Allocation, AllocationPlan
from elasticdl.scheduler.snapshot import JobInfo, Snapshot, WorkersByNode


@dataclass(frozen=True)
class Memory:
    """The last decision; a job that did not fit is not tried again while nothing changes."""

    nodes: frozenset[str]
    counts: Mapping[str, int]  # desired workers
    allocated: Mapping[str, WorkersByNode]


@dataclass(frozen=True)
class Optimus:
    name: str = "optimus"
    is_rigid: bool = False
    interval_s: float = 60.0
    decides_on_events: bool = False
    adapts_batch: bool = False
    needs_oracle: bool = False

    def decide(self, snapshot: Snapshot, memory: Memory | None) -> Decision:
        jobs = sort_by_submission(snapshot.jobs)
        counts, nodes = self._choose_counts(snapshot, jobs), frozenset(snapshot.nodes_by_name)
        current = {job.name: job.workers for job in jobs if job.workers}
        if memory == Memory(nodes, counts, current) and can_all_stay(snapshot.nodes, jobs):
            assigned: Mapping[str, WorkersByNode] = current
        elif all(can_use_any_device(job) for job in jobs):
            assigned = _place_all_on_emptiest(FreeResources(snapshot.nodes), jobs, counts)
        else:
            assigned = assign_nodes(FreeResources(snapshot.nodes), jobs, counts)
        plan = AllocationPlan({job.name: _allocation(job, assigned.get(job.name, {})) for job in jobs})
        return Decision(plan, Memory(nodes, counts, {name: workers for name, workers in assigned.items() if workers}))

    def _choose_counts(self, snapshot: Snapshot, jobs: list[JobInfo]) -> dict[str, int]:
        free_devices, speeds = snapshot.total_devices, SpeedEstimates(snapshot)
        counts = {}
        curves: dict[str, Floats] = {}
        gains: list[
            tuple[float, int, int]
        ] = []  # a heap of negative gains per device, with the job's index and its next size
        for index, job in enumerate(jobs):
            counts[job.name] = job.min_size if job.min_size * job.devices <= free_devices else 0
            free_devices -= counts[job.name] * job.devices
            if counts[job.name]:
                curves[job.name] = _remaining_s(job, snapshot.total_devices, speeds)
                self._push_gain(gains, index, job, counts[job.name], curves[job.name])
        while gains and free_devices > 0:
            gain, index, size = heapq.heappop(gains)
            job = jobs[index]
            if gain >= 0:
                break
            step_devices = (size - counts[job.name]) * job.devices
            if step_devices <= free_devices:
                free_devices -= step_devices
                counts[job.name] = size
                self._push_gain(gains, index, job, size, curves[job.name])
        return counts

    def _push_gain(
        self, gains: list[tuple[float, int, int]], index: int, job: JobInfo, count: int, curve: Floats
    ) -> None:
        size = next_size(job, count)
        if 0 < size < len(curve):
            gain = (curve[count] - curve[size]) / ((size - count) * job.devices)
            heapq.heappush(gains, (-float(gain), index, size))


def _remaining_s(job: JobInfo, devices: int, speeds: SpeedEstimates) -> Floats:
    """Returns the remaining seconds by number of workers, from 0."""
    rates = speeds.rates(job, np.arange(min(job.max_workers, devices // job.devices) + 1))
    return np.where(rates > 0, speeds.work_left(job) / np.where(rates > 0, rates, 1.0), math.inf)


def _place_all_on_emptiest(
    free: FreeResources, jobs: list[JobInfo], counts: Mapping[str, int]
) -> dict[str, WorkersByNode]:
    """Places jobs that can use any device: unchanged jobs stay, then the smallest choose first."""
    assigned: dict[str, WorkersByNode] = {}
    for job in jobs:
        if counts[job.name] == job.worker_count and free.can_hold(job, job.workers):
            assigned[job.name] = job.workers
            free.allocate(job, job.workers)
    for job in sorted(jobs, key=lambda job: counts[job.name]):
        if job.name not in assigned:
            assigned[job.name] = place_on_emptiest(free, job, counts[job.name]) or {}
            free.allocate(job, assigned[job.name])
    return assigned


def _allocation(job: JobInfo, workers: WorkersByNode) -> Allocation:
    if not workers:
        return Allocation({}, f"waits: its first {job.min_size} workers do not fit")
    return Allocation(workers, f"{sum(workers.values())} workers: one more would shorten another job by more")


POLICY = Optimus
