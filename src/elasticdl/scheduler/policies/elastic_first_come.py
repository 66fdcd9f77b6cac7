"""ElasticDL's first-come elastic scheduling: whoever comes starts at once with whatever is free.

As the original left it to Kubernetes: pods are asked for in the order of submission, what is free is given at once,
the rest when somebody leaves. Jobs of equal priority never take from each other. First every job gets its minimum,
in order; then what is left goes round, one worker each (vodascheduler's "Elastic-FIFO").

Deviations: pods already running are never moved; going round instead of filling the first job's maximum is what the
Kubernetes queue did in effect, since masters ask again and again.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace
from typing import Any

from elasticdl.scheduler.interface import Decision
from elasticdl.scheduler.placement import keep
from elasticdl.scheduler.plan import Allocation, Plan
from elasticdl.scheduler.room import Room
from elasticdl.scheduler.snapshot import Job, Snapshot, Workers


@dataclass(frozen=True)
class ElasticFirstCome:
    name: str = "elastic-first-come"
    is_rigid: bool = False
    interval_s: float = 0.0
    asks_at_events: bool = True

    def decide(self, snapshot: Snapshot, memory: Any) -> Decision:
        room = Room(snapshot.nodes)
        queue = sorted(snapshot.jobs, key=lambda job: (job.submitted_at, job.name))
        given: dict[str, Workers] = {}
        for job in sorted(queue, key=lambda job: not job.is_running):
            size = job.count if job.is_running else job.allowed(job.maximum)[0]
            if (workers := keep(room, job, size)) is not None:
                given[job.name] = workers
                room.take(job, workers)
        self._go_round(room, [job for job in queue if job.name in given], given)
        return Decision(Plan({job.name: _answer(job, given.get(job.name, {})) for job in queue}))

    def _go_round(self, room: Room, queue: list[Job], given: dict[str, Workers]) -> None:
        waiting = deque(queue)
        while waiting and room.free:
            job = waiting.popleft()
            count = sum(given[job.name].values())
            size = next((size for size in job.allowed(count + room.free) if size > count), 0)
            if not size:
                continue
            room.give_back(job, given[job.name])
            grown = keep(room, replace(job, workers=given[job.name]), size)
            if grown is not None:
                given[job.name] = grown
                waiting.append(job)
            room.take(job, given[job.name])


def _answer(job: Job, workers: Workers) -> Allocation:
    count = sum(workers.values())
    if not workers:
        return Allocation({}, f"waits for its minimum of {job.minimum} workers: earlier jobs hold the devices")
    if count < job.maximum:
        return Allocation(workers, f"{count} of {job.maximum} workers: all that is free, in order of submission")
    return Allocation(workers, f"all of its {count} workers")


POLICY = ElasticFirstCome
