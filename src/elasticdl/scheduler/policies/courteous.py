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
from elasticdl.scheduler.plan import Allocation, Plan
from elasticdl.scheduler.room import Room
from elasticdl.scheduler.settling import enlarge, in_order, next_size, settle, staying, with_workers
from elasticdl.scheduler.snapshot import Job, Node, Snapshot, Workers


@dataclass(frozen=True)
class Courteous:
    name: str = "courteous"
    is_rigid: bool = False
    interval_s: float = 0.0
    asks_at_events: bool = True
    adapts_batch: bool = False
    needs_oracle: bool = False

    def decide(self, snapshot: Snapshot, memory: Any) -> Decision:
        queue = in_order(snapshot.jobs)
        given = _now(queue, snapshot.nodes)
        # Again from what came out, until it is no better: so the next decision changes nothing.
        while (new := _proposed(queue, given, snapshot)) and _levels(queue, new) > _levels(queue, given):
            given = new
        running = [job for job in queue if job.name in given]
        level = sum(job.devices * sum(given[job.name].values()) for job in running) / max(len(running), 1)
        return Decision(Plan({job.name: _answer(job, given.get(job.name, {}), level) for job in queue}))


def _now(queue: list[Job], nodes: Iterable[Node]) -> dict[str, Workers]:
    """What jobs have, as far as it is still there."""
    room, given = Room(nodes), {}
    for job in queue:
        if job.workers and (kept := staying(room, job)):
            given[job.name] = kept
            room.take(job, kept)
    return given


def _proposed(queue: list[Job], given: Mapping[str, Workers], snapshot: Snapshot) -> dict[str, Workers]:
    jobs = [with_workers(job, given.get(job.name, {})) for job in queue]
    room = Room(snapshot.nodes)
    new = settle(room, sorted(jobs, key=lambda job: not job.workers), levelled(jobs, snapshot.devices))
    _grow_into(room, jobs, new)
    return new


def _levels(queue: list[Job], given: Mapping[str, Workers]) -> list[int]:
    """Devices of all jobs, the least first: greater is better."""
    return sorted(job.devices * sum(given.get(job.name, {}).values()) for job in queue)


def levelled(queue: list[Job], devices: int) -> dict[str, int]:
    """Workers of each job, so that nobody could have more without somebody having less who has no more than they."""
    sizes: dict[str, int] = {}
    free = devices
    for job in sorted(queue, key=lambda job: not job.workers):
        if job.least * job.devices <= free:
            sizes[job.name] = job.least
            free -= job.least * job.devices
    line = [_turn(job, index, job.least) for index, job in enumerate(queue) if job.name in sizes]
    heapq.heapify(line)
    while line and free:
        _, _, index = heapq.heappop(line)
        job = queue[index]
        size = next_size(job, sizes[job.name])
        cost = (size - sizes[job.name]) * job.devices
        if size and cost <= free:
            free -= cost
            sizes[job.name] = size
            heapq.heappush(line, _turn(job, index, size))
    return sizes


def _turn(job: Job, index: int, size: int) -> tuple[int, bool, int]:
    """Who has the least is next; on a tie who has more already, so that it can stay so."""
    return size * job.devices, job.count <= size, index


def _grow_into(room: Room, queue: list[Job], given: dict[str, Workers]) -> None:
    """Devices that somebody could not use where they are go to those with the least who can."""
    line = [job for job in queue if job.name in given]
    while line and room.free:
        job = min(line, key=lambda job: (job.devices * sum(given[job.name].values()), job.submitted_at, job.name))
        if (grown := _grown(room, job, given[job.name])) is None:
            line.remove(job)
        else:
            given[job.name] = grown


def _grown(room: Room, job: Job, workers: Workers) -> Workers | None:
    """Takes it from `room` too."""
    size = next_size(job, sum(workers.values()))
    if not size or (size - sum(workers.values())) * job.devices > room.free:
        return None
    return enlarge(room, with_workers(job, workers), workers, size)


def _answer(job: Job, workers: Mapping[str, int], level: float) -> Allocation:
    count = sum(workers.values())
    if not workers:
        return Allocation({}, f"waits for its minimum of {job.least} workers: all others have no more than theirs")
    if count == job.maximum:
        return Allocation(workers, f"all of its {count} workers; jobs have {level:.1f} devices on average")
    what = f"{count} of {job.maximum} workers, {count * job.devices} devices"
    return Allocation(workers, f"{what}: levelled with the others, who have {level:.1f} devices on average")


POLICY = Courteous
