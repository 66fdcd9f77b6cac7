"""From counts to nodes: who keeps their count stays, then some shrink, then some grow, then others come."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from elasticdl.scheduler.placement import fewer, keep, meets_demands
from elasticdl.scheduler.room import Room
from elasticdl.scheduler.snapshot import Job, Node, Workers


def in_order(jobs: Iterable[Job]) -> list[Job]:
    """First come, first."""
    return sorted(jobs, key=lambda job: (job.submitted_at, job.name))


def settle(room: Room, jobs: Iterable[Job], sizes: Mapping[str, int], *, is_rigid: bool = False) -> dict[str, Workers]:
    """Nodes for so many workers of each job, taken from `room`; jobs that get none do not stand in it.

    Whoever does not fit gets the next smaller size that does, or nothing if sizes are rigid. In the end those without
    workers are tried once more with the least they can run with, in the order given: a job waits only if it must.
    """
    jobs = list(jobs)
    given: dict[str, Workers] = {}

    def give(job: Job, workers: Workers | None) -> None:
        if workers:
            room.take(job, workers)
            given[job.name] = workers

    for job in jobs:
        if job.workers and job.count == sizes.get(job.name, 0):
            give(job, job.workers if room.holds(job, job.workers) and meets_demands(room, job, job.workers) else None)
    changed = [job for job in jobs if sizes.get(job.name, 0) and job.name not in given]
    for job in sorted(changed, key=lambda job: _turn(job, sizes[job.name])):
        size = sizes[job.name]
        give(job, keep(room, job, size) if is_rigid else fit(room, job, size))
    for job in jobs:
        if job.name not in given and room.free:
            give(job, keep(room, job, job.wish if is_rigid else job.least))
    return given


def fit(room: Room, job: Job, most: int) -> Workers:
    """Up to `most` workers, where they are if possible; {}: not even its least. Takes nothing."""
    size = job.largest(min(most, room.fits_in_all(job)))
    while size:
        if (workers := keep(room, job, size)) is not None:
            return workers
        size = job.largest(size - 1)
    return {}


def staying(room: Room, job: Job) -> Workers:
    """As many of a running job's workers as can stay where they are; {}: it would have to start anew."""
    if room.holds(job, job.workers) and job.allows(job.count) and meets_demands(room, job, job.workers):
        return job.workers
    left = {name: min(n, room.fits(job, name)) for name, n in job.workers.items() if name in room.nodes}
    kept = fewer(left, job.largest(sum(left.values())))
    return kept if meets_demands(room, job, kept) else {}


def can_all_stay(nodes: Iterable[Node], jobs: Iterable[Job]) -> bool:
    """Whether all may keep just the workers they have, on devices of their own."""
    room = Room(nodes)
    for job in jobs:
        if not job.workers:
            continue
        is_allowed = job.allows(job.count) and job.share == 1.0
        if not (is_allowed and room.holds(job, job.workers) and meets_demands(room, job, job.workers)):
            return False
        room.take(job, job.workers)
    return True


def enlarge(room: Room, job: Job, workers: Workers, size: int) -> Workers | None:
    """Takes room for `size` workers in place of these, beside them if possible. None: no room, and nothing changed."""
    room.give_back(job, workers)
    grown = keep(room, with_workers(job, workers) if workers else job, size)
    room.take(job, workers if grown is None else grown)
    return grown


def with_workers(job: Job, workers: Workers) -> Job:
    """As if it had these."""
    return job if workers == job.workers else replace(job, workers=workers)


def next_size(job: Job, count: int) -> int:
    """The least allowed number of workers above `count`; 0: there is none."""
    if job.sizes:
        return min((size for size in job.sizes if size > count and job.allows(size)), default=0)
    return 0 if count >= job.maximum else max(count + 1, job.minimum)


def is_plain(job: Job) -> bool:
    """Whether any free device will do for any of its workers, so that counting devices is enough."""
    return job.devices == 1 and not (job.request or job.demands or job.kinds)


def _turn(job: Job, size: int) -> tuple[int, int]:
    if size < job.count:
        return 0, 0
    return (1, 0) if job.workers else (2, -size * job.devices)
