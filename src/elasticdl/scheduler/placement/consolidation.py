"""Defragmentation by migration, where it pays: a spread job moves onto fewer nodes, and small jobs make way for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from elasticdl.scheduler.placement.free_resources import FreeResources
from elasticdl.scheduler.placement.nodes import is_consolidated, place_workers
from elasticdl.scheduler.snapshot import JobInfo, NodeInfo, WorkersByNode

MAX_MOVES = 4  # in one decision


def consolidate(
    nodes: Sequence[NodeInfo], jobs: Sequence[JobInfo], given: Mapping[str, WorkersByNode], lasts_s: float
) -> dict[str, WorkersByNode]:
    """`given`, with jobs on fewer nodes that gain more work within `lasts_s` than moving costs."""
    found = dict(given)
    if all(len(workers) < 2 for workers in found.values()):
        return found
    by_name = {job.name: job for job in jobs}
    room = FreeResources(nodes)
    for name, workers in found.items():
        room.allocate(by_name[name], workers)
    spread = [
        job for job in jobs if len(found[job.name]) > 1 and not job.constraints
        and not is_consolidated(room, job, found[job.name])
    ]  # fmt: skip
    for job in spread[:MAX_MOVES]:
        room.release(job, found[job.name])
        better = _gather_on_fewer_nodes(room, job, found[job.name])
        if (
            better is not None
            and len(better) < len(found[job.name])
            and _is_worth_moving(job, found[job.name], better, lasts_s)
        ):
            found[job.name] = better
            room.allocate(job, better)
            continue
        room.allocate(job, found[job.name])
        _move_others_away(room, job, found, by_name, lasts_s)
    return found


def _gather_on_fewer_nodes(room: FreeResources, job: JobInfo, workers: WorkersByNode) -> WorkersByNode | None:
    """On one of its own nodes if one has room for all: some need not move then. Else wherever it takes fewest."""
    count = sum(workers.values())
    own = [
        name for name in sorted(workers, key=lambda name: -workers[name]) if room.workers_that_fit(job, name) >= count
    ]
    return {own[0]: count} if own else place_workers(room, job, count)


def _move_others_away(
    room: FreeResources, job: JobInfo, found: dict[str, WorkersByNode], by_name: Mapping[str, JobInfo], lasts_s: float
) -> None:
    """Onto one node, whose smallest other jobs go where there is room; nothing happens if that does not pay."""
    count = sum(found[job.name].values())
    if count * job.devices > max(room.nodes[name].devices for name in found[job.name]):
        return
    node = max(found[job.name], key=lambda name: (found[job.name][name], name))
    others = [
        one for one, workers in found.items()
        if one != job.name and node in workers and len(workers) == 1 and not by_name[one].constraints
    ]  # fmt: skip
    others.sort(key=lambda one: (sum(found[one].values()) * by_name[one].devices, one))
    before = dict(found)
    room.release(job, found[job.name])
    moved: list[str] = []
    room_after = room.workers_that_fit(job, node)
    for other in others:
        if room_after >= count:
            break
        guest = by_name[other]
        room.release(guest, found[other])
        room_after = room.workers_that_fit(job, node)
        moved.append(other)
    if room_after >= count:
        room.allocate(job, {node: count})
        found[job.name] = {node: count}
        if all(_move_to_other_node(room, by_name[other], found, node) for other in moved):
            cost = sum(_migration_cost(by_name[other]) for other in moved)
            if _is_worth_moving(job, before[job.name], found[job.name], lasts_s, cost):
                return
        room.release(job, {node: count})
    for other in moved:
        if found[other] is not before[other]:
            room.release(by_name[other], found[other])
        room.allocate(by_name[other], before[other])
        found[other] = before[other]
    room.allocate(job, before[job.name])
    found[job.name] = before[job.name]


def _move_to_other_node(room: FreeResources, guest: JobInfo, found: dict[str, WorkersByNode], away_from: str) -> bool:
    """Onto one other node."""
    count = sum(found[guest.name].values())
    target = next((name for name in room.best_fit_nodes(guest, count) if name != away_from), None)
    if target is None:
        return False
    found[guest.name] = {target: count}
    room.allocate(guest, found[guest.name])
    return True


def _migration_cost(guest: JobInfo) -> float:
    """Seconds of one device that moving it costs."""
    return guest.change_cost_s * guest.worker_count * guest.devices


def _is_worth_moving(
    job: JobInfo, before: WorkersByNode, after: WorkersByNode, lasts_s: float, others: float = 0.0
) -> bool:
    if job.rates is None:
        return len(job.workers) != len(before) or (others == 0.0 and job.change_cost_s < 1.0)
    count = sum(before.values())
    slow, fast = job.rates.work_per_s(np.array([count, count]), np.array([len(before), len(after)]))
    lasts_s = min(lasts_s, job.work_left / fast) if job.work_left is not None and fast > 0 else lasts_s
    moves = job.workers != after and job.is_running
    gained = (fast / slow - 1.0) * lasts_s if slow > 0 else lasts_s
    return bool(gained * count * job.devices > (job.change_cost_s * count * job.devices if moves else 0.0) + others)
