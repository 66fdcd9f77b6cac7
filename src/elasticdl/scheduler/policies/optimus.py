"""Optimus (EuroSys'18): every worker goes to the job whose remaining time it shortens most.

Each job gets one worker, so that none starves. Then, while there are devices: the job with the greatest gain
Q/f(w) − Q/f(w+1) gets one more, Q its remaining work and f its speed. Asked every 10 minutes in the paper; 60 s in
Pollux's evaluation, whose "Optimus+Oracle" (true speeds, true remaining steps) this is with the simulator's oracle.

Deviations: speed and remaining work come with the snapshot (fitted there, by the models of Optimus or Pollux), not from
runs made to sample them; gain is per device, the one resource that is scheduled; parameter servers are not allocated, a
job's ps belong to it. As in Pollux's port the smallest jobs are placed first, on the emptiest nodes; a job whose number
of workers stays, stays where it is; what a change costs is not weighed. A job whose remaining work nobody knows is
taken to have as much left as it did.
"""

from __future__ import annotations

import heapq
import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from elasticdl.scheduler.interface import Decision, Floats
from elasticdl.scheduler.placement import on_emptiest
from elasticdl.scheduler.plan import Allocation, Plan
from elasticdl.scheduler.room import Room
from elasticdl.scheduler.snapshot import Job, Snapshot


@dataclass(frozen=True)
class Optimus:
    name: str = "optimus"
    is_rigid: bool = False
    interval_s: float = 60.0
    asks_at_events: bool = False
    adapts_batch: bool = False
    needs_oracle: bool = False

    def decide(self, snapshot: Snapshot, memory: Any) -> Decision:
        jobs = sorted(snapshot.jobs, key=lambda job: (job.submitted_at, job.name))
        counts = self._counts(snapshot, jobs)
        room = Room(snapshot.nodes)
        given = {}
        for job in jobs:
            if counts[job.name] == job.count and room.holds(job, job.workers):
                given[job.name] = job.workers
                room.take(job, job.workers)
        for job in sorted(jobs, key=lambda job: counts[job.name]):
            if job.name in given:
                continue
            # Rooms of several resources may be smaller than the sum of their devices.
            sizes = reversed(job.allowed(counts[job.name]))
            workers = next(filter(None, (on_emptiest(room, job, size) for size in sizes)), {})
            given[job.name] = workers
            room.take(job, workers)
        return Decision(Plan({job.name: _answer(job, Allocation(given[job.name], "")) for job in jobs}))

    def _counts(self, snapshot: Snapshot, jobs: list[Job]) -> dict[str, int]:
        free = snapshot.devices
        counts = {}
        curves: dict[str, Floats] = {}
        gains: list[tuple[float, int, int]] = []  # least first: of a step up, per device
        for place, job in enumerate(jobs):
            first = job.allowed(job.maximum)[0]
            counts[job.name] = first if first * job.devices <= free else 0
            free -= counts[job.name] * job.devices
            if counts[job.name]:
                curves[job.name] = _remaining_s(job, snapshot)
                self._offer(gains, place, job, counts[job.name], curves[job.name])
        while gains and free > 0:
            gain, place, size = heapq.heappop(gains)
            job = jobs[place]
            if gain >= 0:
                break
            more = (size - counts[job.name]) * job.devices
            if more <= free:
                free -= more
                counts[job.name] = size
                self._offer(gains, place, job, size, curves[job.name])
        return counts

    def _offer(self, gains: list[tuple[float, int, int]], place: int, job: Job, count: int, curve: Floats) -> None:
        size = next((size for size in job.allowed(len(curve) - 1) if size > count), 0)
        if size:
            gain = (curve[count] - curve[size]) / ((size - count) * job.devices)
            heapq.heappush(gains, (-float(gain), place, size))


def _remaining_s(job: Job, snapshot: Snapshot) -> Floats:
    """By its number of workers, from 0 up."""
    most = min(job.maximum, snapshot.devices // job.devices)
    counts = np.arange(most + 1)
    nodes = np.ceil(counts * job.devices / snapshot.devices_per_node)
    rates = job.rates.at(counts, nodes) if job.rates else counts.astype(float)
    left = job.work_left if job.work_left is not None else max(job.work_done, 1.0)
    return np.where(rates > 0, left / np.where(rates > 0, rates, 1.0), math.inf)


def _answer(job: Job, given: Allocation) -> Allocation:
    if not given.workers:
        return Allocation({}, f"waits: no room for its first {job.minimum} workers")
    return Allocation(given.workers, f"{given.count} workers: one more would shorten another job by more")


POLICY = Optimus
