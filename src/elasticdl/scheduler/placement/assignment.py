"""Assigns nodes to many jobs whose worker counts are known: unchanged jobs stay, then jobs shrink, grow and start."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from elasticdl.scheduler.placement.free_resources import FreeResources
from elasticdl.scheduler.placement.nodes import meets_constraints, resize_in_place, shrink_workers
from elasticdl.scheduler.snapshot import JobInfo, NodeInfo, WorkersByNode


def sort_by_submission(jobs: Iterable[JobInfo]) -> list[JobInfo]:
    """First come, first."""
    return sorted(jobs, key=lambda job: (job.submitted_at, job.name))


def assign_nodes(
    room: FreeResources, jobs: Iterable[JobInfo], sizes: Mapping[str, int], *, is_rigid: bool = False
) -> dict[str, WorkersByNode]:
    """Nodes for so many workers of each job, taken from `room`; jobs that get none do not stand in it.

    Whoever does not fit gets the next smaller size that does, or nothing if sizes are rigid. In the end those without
    workers are tried once more with the least they can run with, in the order given: a job waits only if it must.
    """
    jobs = list(jobs)
    given: dict[str, WorkersByNode] = {}

    def give(job: JobInfo, workers: WorkersByNode | None) -> None:
        if workers:
            room.allocate(job, workers)
            given[job.name] = workers

    for job in jobs:
        if job.workers and job.worker_count == sizes.get(job.name, 0):
            give(
                job,
                job.workers if room.can_hold(job, job.workers) and meets_constraints(room, job, job.workers) else None,
            )
    changed = [job for job in jobs if sizes.get(job.name, 0) and job.name not in given]
    for job in sorted(changed, key=lambda job: _change_order(job, sizes[job.name])):
        size = sizes[job.name]
        give(job, resize_in_place(room, job, size) if is_rigid else place_at_most(room, job, size))
    for job in jobs:
        if job.name not in given and room.free_devices:
            give(job, resize_in_place(room, job, job.rigid_size if is_rigid else job.min_size))
    return given


def place_at_most(room: FreeResources, job: JobInfo, max_workers: int) -> WorkersByNode:
    """Up to `most` workers, where they are if possible; {}: not even its least. Takes nothing."""
    size = job.max_size_up_to(min(max_workers, room.total_workers_that_fit(job)))
    while size:
        if (workers := resize_in_place(room, job, size)) is not None:
            return workers
        size = job.max_size_up_to(size - 1)
    return {}


def surviving_workers(room: FreeResources, job: JobInfo) -> WorkersByNode:
    """As many of a running job's workers as can stay where they are; {}: it would have to start anew."""
    if (
        room.can_hold(job, job.workers)
        and job.allows_size(job.worker_count)
        and meets_constraints(room, job, job.workers)
    ):
        return job.workers
    left = {name: min(n, room.workers_that_fit(job, name)) for name, n in job.workers.items() if name in room.nodes}
    kept = shrink_workers(left, job.max_size_up_to(sum(left.values())))
    return kept if meets_constraints(room, job, kept) else {}


def can_all_stay(nodes: Iterable[NodeInfo], jobs: Iterable[JobInfo]) -> bool:
    """Whether all may keep just the workers they have, on devices of their own."""
    room = FreeResources(nodes)
    for job in jobs:
        if not job.workers:
            continue
        is_allowed = job.allows_size(job.worker_count) and job.share == 1.0
        if not (is_allowed and room.can_hold(job, job.workers) and meets_constraints(room, job, job.workers)):
            return False
        room.allocate(job, job.workers)
    return True


def grow_workers(room: FreeResources, job: JobInfo, workers: WorkersByNode, size: int) -> WorkersByNode | None:
    """Takes room for `size` workers in place of these, beside them if possible. None: no room, and nothing changed."""
    room.release(job, workers)
    grown = resize_in_place(room, with_workers(job, workers) if workers else job, size)
    room.allocate(job, workers if grown is None else grown)
    return grown


def with_workers(job: JobInfo, workers: WorkersByNode) -> JobInfo:
    """As if it had these."""
    return job if workers == job.workers else replace(job, workers=workers)


def next_size(job: JobInfo, count: int) -> int:
    """The least allowed number of workers above `count`; 0: there is none."""
    if job.sizes:
        return min((size for size in job.sizes if size > count and job.allows_size(size)), default=0)
    return 0 if count >= job.max_workers else max(count + 1, job.min_workers)


def can_use_any_device(job: JobInfo) -> bool:
    """Whether any free device will do for any of its workers, so that counting devices is enough."""
    return job.devices == 1 and not (job.request or job.constraints or job.kinds)


def _change_order(job: JobInfo, size: int) -> tuple[int, int]:
    if size < job.worker_count:
        return 0, 0
    return (1, 0) if job.workers else (2, -size * job.devices)


DesiredSize = tuple[JobInfo, int]


def assign_or_repack(
    nodes: Iterable[NodeInfo], wanted: Sequence[DesiredSize], found: Mapping[str, WorkersByNode] = {}
) -> dict[str, WorkersByNode]:
    """Workers of each job. They stay where they are, unless placing all anew serves more jobs, or gives more devices.

    `found` is a placement of all that is wanted, where it is known already that there is one. Without it, whoever
    does not fit gets the largest allowed size that does, or nothing. A job that shall have none (0) starts with its
    least all the same if there is room for it then, in the order of `wanted`: nobody waits beside a free device.
    """
    nodes = tuple(nodes)
    given = _assign_in_order(nodes, wanted)
    if any(sum(given[job.name].values()) < count for job, count in wanted):
        anew = dict(found) or _assign_in_order(nodes, [(replace(job, workers={}), count) for job, count in wanted])
        given = anew if _assignment_value(anew, wanted) > _assignment_value(given, wanted) else given
    room = FreeResources(nodes)
    for job, _ in wanted:
        room.allocate(job, given.setdefault(job.name, {}))
    for job, count in wanted:
        if not count and room.free_devices >= job.devices:
            given[job.name] = place_at_most(room, job, next_size(job, 0))
            room.allocate(job, given[job.name])
    return given


def sort_by_change(wanted: Iterable[DesiredSize]) -> list[DesiredSize]:
    """Who stays as it is, who shrinks, who grows, who starts; among these the larger and the more particular first."""

    def key(one: DesiredSize) -> tuple[int, int, int, float, str]:
        job, count = one
        change = 3 if not job.workers else 0 if job.worker_count == count else 1 if count < job.worker_count else 2
        return change, len(job.kinds) or 1 << 30, -count * job.devices, job.submitted_at, job.name

    return sorted(wanted, key=key)


def grow_round_robin(room: FreeResources, queue: Sequence[JobInfo], given: dict[str, WorkersByNode]) -> None:
    """What is left goes round in this order, a step to the next allowed size each, until nobody can take more."""
    turn = list(queue)
    while turn and room.free_devices:
        turn = [job for job in turn if _grow_one_step(room, job, given)]


def _grow_one_step(room: FreeResources, job: JobInfo, given: dict[str, WorkersByNode]) -> bool:
    workers = given.get(job.name, {})
    size = next_size(job, sum(workers.values()))
    grown = grow_workers(room, job, workers, size) if size else None
    if grown is None:
        return False
    given[job.name] = grown
    return True


def _assign_in_order(nodes: Iterable[NodeInfo], wanted: Sequence[DesiredSize]) -> dict[str, WorkersByNode]:
    room = FreeResources(nodes)
    given: dict[str, WorkersByNode] = {}
    for job, count in sort_by_change(wanted):
        given[job.name] = place_at_most(room, job, count) if count else {}
        room.allocate(job, given[job.name])
    return given


def _assignment_value(given: Mapping[str, WorkersByNode], wanted: Sequence[DesiredSize]) -> tuple[int, int]:
    served = sum(1 for workers in given.values() if workers)
    return served, sum(job.devices * sum(given.get(job.name, {}).values()) for job, _ in wanted)
