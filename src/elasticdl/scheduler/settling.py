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
        give(job, fitting(room, job, sizes[job.name], is_rigid=is_rigid))
    for job in jobs:
        if job.name not in given and room.free:
            give(job, keep(room, job, job.wish if is_rigid else job.least))
    return given


def fitting(room: Room, job: Job, size: int, *, is_rigid: bool = False) -> Workers | None:
    """Nodes for this many workers, or for fewer if so many do not fit."""
    workers = keep(room, job, size)
    if workers is not None or is_rigid:
        return workers
    for smaller in reversed(job.allowed(min(size - 1, room.fits_in_all(job)))):
        if (workers := keep(room, job, smaller)) is not None:
            return workers
    return None


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


def with_workers(job: Job, workers: Workers) -> Job:
    """As if it had these."""
    return job if workers == job.workers else replace(job, workers=workers)


def next_size(job: Job, count: int) -> int:
    """The allowed number of workers after `count`; 0: there is none."""
    if not job.sizes:
        return 0 if count >= job.maximum else max(count + 1, job.minimum)
    return next((size for size in job.allowed(job.maximum) if size > count), 0)


def is_plain(job: Job) -> bool:
    """Whether any free device will do for any of its workers, so that counting devices is enough."""
    return job.devices == 1 and not (job.request or job.demands or job.kinds)


def _turn(job: Job, size: int) -> tuple[int, int]:
    if size < job.count:
        return 0, 0
    return (1, 0) if job.workers else (2, -size * job.devices)
