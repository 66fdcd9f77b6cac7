"""Migrates jobs where that pays: a distributed job moves onto fewer nodes, and small jobs make room for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from elasticdl.scheduler.placement.free_resources import FreeResources
from elasticdl.scheduler.placement.nodes import is_consolidated, place_workers
from elasticdl.scheduler.snapshot import JobInfo, NodeInfo, WorkersByNode

MAX_MOVES = 4  # per decision


def consolidate(
    nodes: Sequence[NodeInfo], jobs: Sequence[JobInfo], assigned: Mapping[str, WorkersByNode], horizon_s: float
) -> dict[str, WorkersByNode]:
    """Returns `assigned` with those jobs on fewer nodes that gain more work within `horizon_s` than moving costs."""
    placements = dict(assigned)
    if all(len(workers) < 2 for workers in placements.values()):
        return placements
    jobs_by_name = {job.name: job for job in jobs}
    free = FreeResources(nodes)
    for name, workers in placements.items():
        free.allocate(jobs_by_name[name], workers)
    spread = [
        job for job in jobs if len(placements[job.name]) > 1 and not job.constraints
        and not is_consolidated(free, job, placements[job.name])
    ]  # fmt: skip
    for job in spread[:MAX_MOVES]:
        free.release(job, placements[job.name])
        better = _gather_on_fewer_nodes(free, job, placements[job.name])
        if (
            better is not None
            and len(better) < len(placements[job.name])
            and _is_worth_moving(job, placements[job.name], better, horizon_s)
        ):
            placements[job.name] = better
            free.allocate(job, better)
            continue
        free.allocate(job, placements[job.name])
        _move_others_away(free, job, placements, jobs_by_name, horizon_s)
    return placements


def _gather_on_fewer_nodes(free: FreeResources, job: JobInfo, workers: WorkersByNode) -> WorkersByNode | None:
    """Prefers one of the job's own nodes, so that some workers need not move, else takes the fewest nodes."""
    count = sum(workers.values())
    own_nodes = [
        name for name in sorted(workers, key=lambda name: -workers[name]) if free.workers_that_fit(job, name) >= count
    ]
    return {own_nodes[0]: count} if own_nodes else place_workers(free, job, count)


def _move_others_away(
    free: FreeResources,
    job: JobInfo,
    placements: dict[str, WorkersByNode],
    jobs_by_name: Mapping[str, JobInfo],
    horizon_s: float,
) -> None:
    """Gathers the job on one node whose smallest other jobs move elsewhere; does nothing if that does not pay."""
    count = sum(placements[job.name].values())
    if count * job.devices > max(free.nodes[name].devices for name in placements[job.name]):
        return
    node = max(placements[job.name], key=lambda name: (placements[job.name][name], name))
    movable = [
        name for name, workers in placements.items()
        if name != job.name and node in workers and len(workers) == 1 and not jobs_by_name[name].constraints
    ]  # fmt: skip
    movable.sort(key=lambda name: (sum(placements[name].values()) * jobs_by_name[name].devices, name))
    previous = dict(placements)
    free.release(job, placements[job.name])
    moved: list[str] = []
    workers_that_fit = free.workers_that_fit(job, node)
    for name in movable:
        if workers_that_fit >= count:
            break
        neighbour = jobs_by_name[name]
        free.release(neighbour, placements[name])
        workers_that_fit = free.workers_that_fit(job, node)
        moved.append(name)
    if workers_that_fit >= count:
        free.allocate(job, {node: count})
        placements[job.name] = {node: count}
        if all(_move_to_other_node(free, jobs_by_name[name], placements, node) for name in moved):
            cost = sum(_migration_cost(jobs_by_name[name]) for name in moved)
            if _is_worth_moving(job, previous[job.name], placements[job.name], horizon_s, cost):
                return
        free.release(job, {node: count})
    for name in moved:
        if placements[name] is not previous[name]:
            free.release(jobs_by_name[name], placements[name])
        free.allocate(jobs_by_name[name], previous[name])
        placements[name] = previous[name]
    free.allocate(job, previous[job.name])
    placements[job.name] = previous[job.name]


def _move_to_other_node(
    free: FreeResources, job: JobInfo, placements: dict[str, WorkersByNode], away_from: str
) -> bool:
    """Moves a job onto one other node."""
    count = sum(placements[job.name].values())
    target = next((name for name in free.best_fit_nodes(job, count) if name != away_from), None)
    if target is None:
        return False
    placements[job.name] = {target: count}
    free.allocate(job, placements[job.name])
    return True


def _migration_cost(job: JobInfo) -> float:
    """Returns the device-seconds that moving the job costs."""
    return job.change_cost_s * job.worker_count * job.devices


def _is_worth_moving(
    job: JobInfo, before: WorkersByNode, after: WorkersByNode, horizon_s: float, cost_of_others: float = 0.0
) -> bool:
    if job.rates is None:
        return len(job.workers) != len(before) or (cost_of_others == 0.0 and job.change_cost_s < 1.0)
    count = sum(before.values())
    slow, fast = job.rates.work_per_s(np.array([count, count]), np.array([len(before), len(after)]))
    horizon_s = min(horizon_s, job.work_left / fast) if job.work_left is not None and fast > 0 else horizon_s
    moves = job.workers != after and job.is_running
    gained = (fast / slow - 1.0) * horizon_s if slow > 0 else horizon_s
    return bool(
        gained * count * job.devices > (job.change_cost_s * count * job.devices if moves else 0.0) + cost_of_others
    )
